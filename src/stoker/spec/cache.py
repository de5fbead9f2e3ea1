"""Where a model's files come from, and how to be sure that they are the right ones."""

from typing import Annotated, Literal

from pydantic import Field, Strict, model_validator

from stoker.spec.meta import Bool, Count, SecretRef, Selector, Spec, Text

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class HuggingFace(Spec):
    """A repository on a hub. Without a revision the newest commit is looked up once and kept."""

    repo: Annotated[str, Field(pattern=r"^[\w.-]+(/[\w.-]+)?$")]
    revision: str = ""
    auth_secret: SecretRef | None = None
    size_gib: Annotated[int, Strict(), Field(ge=1, le=100_000)] | None = Field(default=None, alias="sizeGiB")
    files: tuple[str, ...] = ()  # which files; empty: those that the engine needs


class Directory(Spec):
    """Files that are on the machine already; they are read in place, never copied."""

    path: Text


class Http(Spec):
    """One file behind a URL."""

    url: Annotated[str, Field(pattern=r"^https?://")]


class S3(Spec):
    """Objects under a prefix of a bucket."""

    bucket: Text
    prefix: str = ""
    endpoint: str = ""
    auth_secret: SecretRef | None = None


class Verify(Spec):
    """Checksums by file name (or of the only file, by ``sha256``)."""

    sha256: Sha256 | None = None
    files: dict[str, Sha256] = Field(default_factory=dict)


class ModelCacheSpec(Spec):
    """One model's files, held on each cluster that the selector names."""

    source: Literal["HuggingFace", "Directory", "HTTP", "S3"]
    hugging_face: HuggingFace | None = None
    directory: Directory | None = None
    http: Http | None = None
    s3: S3 | None = None
    verify: Verify | None = None
    accept_licence: Bool = False
    max_parallel_files: Count | None = None
    cluster_selector: Selector = Selector()

    @model_validator(mode="after")
    def _one_source(self) -> "ModelCacheSpec":
        blocks = {
            "HuggingFace": ("huggingFace", self.hugging_face),
            "Directory": ("directory", self.directory),
            "HTTP": ("http", self.http),
            "S3": ("s3", self.s3),
        }
        given = [name for name, (_, block) in blocks.items() if block is not None]
        if given != [self.source]:
            raise ValueError(
                f"source {self.source} needs the block '{blocks[self.source][0]}', and no other source block"
            )
        return self
