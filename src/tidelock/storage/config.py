"""Configuration of the stores: Hudi's keys where Hudi has one, ours below `tidelock.`."""

from __future__ import annotations

from tidelock.core.config import ConfigSection, boolean
from tidelock.core.limits import REQUEST_TIMEOUT_MS

REQUEST_TIMEOUT = ConfigSection.STORES.declare(
    "tidelock.store.request.timeout.ms", "timeout of a storage request", default=REQUEST_TIMEOUT_MS
)
S3_ENDPOINT = ConfigSection.S3.declare(
    "tidelock.s3.endpoint",
    "URL of an S3-compatible server; default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, then AWS",
    parse=str,
)
S3_REGION = ConfigSection.S3.declare(
    "tidelock.s3.region",
    "region of the bucket; default: the AWS configuration, then us-east-1",
    parse=str,
)
S3_PATH_STYLE = ConfigSection.S3.declare(
    "tidelock.s3.path.style",
    "address buckets as host/bucket, not bucket.host; default: true with a custom endpoint",
    parse=boolean,
)
AWS_ACCESS_KEY = ConfigSection.S3.declare(
    "hoodie.aws.access.key", "AWS access key id", parse=str, secret=True
)
AWS_SECRET_KEY = ConfigSection.S3.declare(
    "hoodie.aws.secret.key", "AWS secret key", parse=str, secret=True
)
AWS_SESSION_TOKEN = ConfigSection.S3.declare(
    "hoodie.aws.session.token", "AWS session token", parse=str, secret=True
)
AWS_ROLE_ARN = ConfigSection.S3.declare(
    "hoodie.aws.role.arn", "role to assume for storage requests", parse=str
)
AWS_ROLE_SESSION = ConfigSection.S3.declare(
    "hoodie.aws.role.session.name", "name of the role session", default="hoodie"
)
AWS_ROLE_EXTERNAL_ID = ConfigSection.S3.declare(
    "hoodie.aws.role.external.id", "external id that the role requires", parse=str
)
GCS_ENDPOINT = ConfigSection.GCS.declare(
    "tidelock.gcs.endpoint",
    "URL of a GCS-compatible server, used without credentials; default: STORAGE_EMULATOR_HOST,"
    " then Google",
    parse=str,
)
AZURE_ENDPOINT = ConfigSection.AZURE.declare(
    "tidelock.azure.endpoint",
    "URL of the blob endpoint; default: from the connection string, then from the account",
    parse=str,
)
AZURE_CONNECTION_STRING = ConfigSection.AZURE.declare(
    "hoodie.write.lock.azure.connection.string",
    "Azure storage connection string; default: AZURE_STORAGE_CONNECTION_STRING",
    parse=str,
    secret=True,
)
AZURE_SAS_TOKEN = ConfigSection.AZURE.declare(
    "hoodie.write.lock.azure.sas.token", "shared access signature", parse=str, secret=True
)
AZURE_MANAGED_IDENTITY = ConfigSection.AZURE.declare(
    "hoodie.write.lock.azure.managed.identity.client.id",
    "client id of a user-assigned managed identity",
    parse=str,
)
AZURE_TENANT = ConfigSection.AZURE.declare(
    "hoodie.write.lock.azure.client.tenant.id",
    "tenant of a service principal; used only with client id and secret",
    parse=str,
)
AZURE_CLIENT_ID = ConfigSection.AZURE.declare(
    "hoodie.write.lock.azure.client.id", "id of a service principal", parse=str
)
AZURE_CLIENT_SECRET = ConfigSection.AZURE.declare(
    "hoodie.write.lock.azure.client.secret", "secret of a service principal", parse=str, secret=True
)
