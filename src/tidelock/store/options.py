"""Settings of the stores: Hudi's names where Hudi has one, ours below `tidelock.`."""

from __future__ import annotations

from tidelock.base.config import ConfigKey, boolean, declare
from tidelock.base.limits import REQUEST_TIMEOUT_MS

REQUEST_TIMEOUT = declare(
    ConfigKey(
        "tidelock.store.request.timeout.ms",
        int,
        REQUEST_TIMEOUT_MS,
        "how long one storage request may take",
        group="Stores",
    )
)
S3_ENDPOINT = declare(
    ConfigKey(
        "tidelock.s3.endpoint",
        str,
        None,
        "URL of an S3-compatible server; default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, then AWS",
        group="S3",
    )
)
S3_REGION = declare(
    ConfigKey(
        "tidelock.s3.region",
        str,
        None,
        "region to sign for; default: the usual AWS chain, then us-east-1",
        group="S3",
    )
)
S3_PATH_STYLE = declare(
    ConfigKey(
        "tidelock.s3.path.style",
        boolean,
        None,
        "address buckets as host/bucket, not bucket.host; default: true with a custom endpoint",
        group="S3",
    )
)
AWS_ACCESS_KEY = declare(
    ConfigKey("hoodie.aws.access.key", str, None, "AWS access key id", secret=True, group="S3")
)
AWS_SECRET_KEY = declare(
    ConfigKey("hoodie.aws.secret.key", str, None, "AWS secret key", secret=True, group="S3")
)
AWS_SESSION_TOKEN = declare(
    ConfigKey("hoodie.aws.session.token", str, None, "AWS session token", secret=True, group="S3")
)
AWS_ROLE_ARN = declare(
    ConfigKey("hoodie.aws.role.arn", str, None, "role to assume for storage requests", group="S3")
)
AWS_ROLE_SESSION = declare(
    ConfigKey("hoodie.aws.role.session.name", str, "hoodie", "name of the role session", group="S3")
)
AWS_ROLE_EXTERNAL_ID = declare(
    ConfigKey("hoodie.aws.role.external.id", str, None, "external id the role asks for", group="S3")
)
GCS_ENDPOINT = declare(
    ConfigKey(
        "tidelock.gcs.endpoint",
        str,
        None,
        "URL of a GCS-compatible server, used without credentials; default: STORAGE_EMULATOR_HOST,"
        " then Google",
        group="GCS",
    )
)
AZURE_ENDPOINT = declare(
    ConfigKey(
        "tidelock.azure.endpoint",
        str,
        None,
        "URL of the blob end point; default: from the connection string, then from the account",
        group="Azure",
    )
)
AZURE_CONNECTION_STRING = declare(
    ConfigKey(
        "hoodie.write.lock.azure.connection.string",
        str,
        None,
        "Azure storage connection string; default: AZURE_STORAGE_CONNECTION_STRING",
        secret=True,
        group="Azure",
    )
)
AZURE_SAS_TOKEN = declare(
    ConfigKey(
        "hoodie.write.lock.azure.sas.token",
        str,
        None,
        "shared access signature",
        secret=True,
        group="Azure",
    )
)
AZURE_MANAGED_IDENTITY = declare(
    ConfigKey(
        "hoodie.write.lock.azure.managed.identity.client.id",
        str,
        None,
        "client id of a user-assigned managed identity",
        group="Azure",
    )
)
AZURE_TENANT = declare(
    ConfigKey(
        "hoodie.write.lock.azure.client.tenant.id",
        str,
        None,
        "tenant of a service principal; acts only with client id and secret",
        group="Azure",
    )
)
AZURE_CLIENT_ID = declare(
    ConfigKey(
        "hoodie.write.lock.azure.client.id", str, None, "id of a service principal", group="Azure"
    )
)
AZURE_CLIENT_SECRET = declare(
    ConfigKey(
        "hoodie.write.lock.azure.client.secret",
        str,
        None,
        "secret of a service principal",
        secret=True,
        group="Azure",
    )
)
