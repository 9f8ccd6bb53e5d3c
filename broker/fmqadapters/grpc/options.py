"""Every gRPC option that FMQ sets, and why. One table for clients, one for servers."""

from typing import Final

from fmqport.transport import MAX_MESSAGE_BYTES

KEEPALIVE_TIME_MS: Final = 2000
PING_TIMEOUT_MS: Final = 2000
"""Together under 5 s: a peer that vanished silently is noticed within that time.

The ping's own timeout counts: gRPC's core never fires `keepalive_timeout_ms` (its pull request
39239), which here only sets the socket's TCP_USER_TIMEOUT.
"""

Options = list[tuple[str, int]]

_BOTH: Final[Options] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),  # 0 = as many as keepalive wants
    ("grpc.http2.lookahead_bytes", 4 * 1024 * 1024),  # a stream's window
    ("grpc.http2.bdp_probe", 0),  # the window stays as it is: no pings to find a better one
    ("grpc.http2.max_frame_size", 1024 * 1024),  # a message is a frame or two, not one per 16 KiB
]

CLIENT: Final[Options] = [
    *_BOTH,
    ("grpc.enable_http_proxy", 0),  # brokers are dialled directly, whatever the environment says
    ("grpc.enable_retries", 0),  # callers retry, they know what is idempotent
    ("grpc.service_config_disable_resolution", 1),  # no TXT look-ups
    ("grpc.use_local_subchannel_pool", 1),  # a fresh channel dials afresh: no shared back-off
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1000),  # also the connect timeout of one attempt
    ("grpc.max_reconnect_backoff_ms", 1000),
]

SERVER: Final[Options] = [
    *_BOTH,
    ("grpc.so_reuseport", 0),  # two brokers on one port must not share it silently
    ("grpc.http2.min_ping_interval_without_data_ms", 100),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 100),
    ("grpc.http2.max_ping_strikes", 0),  # never send a client away for its pings
]
