"""A pytest plugin: hypothesis stops at the first example that fails, and does not look for a simpler one."""

from hypothesis import Phase, settings

settings.register_profile("first failure", phases=(Phase.explicit, Phase.generate), database=None)
settings.load_profile("first failure")
