"""ssm: rebuild, check and use what is known about length generalization in recurrent language models."""

__version__ = "0.1.0"
