"""The content of ZooKeeper, as typed values and their JSON. One file per node.

    /fmq/<cluster>/groups/<g>/config     group_config   written by the operator or `fmq`
    /fmq/<cluster>/groups/<g>/state      group_state    persistent, compare-and-set by version
    /fmq/<cluster>/groups/<g>/live/<id>  live_broker    ephemeral: evidence, never truth
    /fmq/<cluster>/groups/<g>/chains     closed_chains  its version: the lease on ordered segments
    /fmq/<cluster>/topics                topic_numbers
    /fmq/<cluster>/topics/<t>            topic
    /fmq/<cluster>/ordered/<t>           chain, chain_json  persistent, compare-and-set by version
    /fmq/<cluster>/ordered/<t>/senders/<place>  sender_place  ephemeral sequential: the line

`layout` has the paths, `codec` what all nodes share. Unknown JSON fields are ignored, so that a
newer writer does not stop an older reader; `chain` and `closed_chains` also write them back.
"""
