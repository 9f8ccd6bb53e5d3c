"""Send ten records and read them back, without asyncio.

python examples/blocking.py
"""

import os

import fmqclient.sync

BROKERS = os.environ.get("FMQ_BROKERS", "fmq://127.0.0.1:9876")


def main() -> None:
    """Send and read with calls that block."""
    with fmqclient.sync.connect(BROKERS) as client:
        client.admin().create_topic("invoices", queues=4, if_not_exists=True)

        with client.producer() as producer:
            for number in range(10):
                producer.send("invoices", f"invoice {number}".encode())

        with client.consumer("invoices", group="archive") as consumer:
            for number, message in enumerate(consumer, 1):
                print(f"{message.group}/{message.queue} {message.value.decode()}")
                message.ack()
                if number == 10:
                    break
            consumer.commit()  # wait until the brokers have stored the acknowledgements


if __name__ == "__main__":
    main()
