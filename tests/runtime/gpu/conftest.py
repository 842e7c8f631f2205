import pytest

from fusewise.runtime.gpu.fake import FakeDriver


@pytest.fixture(scope="session")
def device():
    """One simulated device for tests that do not break it: its interpreter takes most of a second to start."""
    driver = FakeDriver("sm_90", 1 << 26)
    yield driver
    driver.close()
