# Each name once: type checkers read this file, and __init__.py loads from it what is used.
from .analytics.analytics import Analysis as Analysis
from .analytics.analytics import analyze as analyze
from .analytics.analytics import analyze_sweep as analyze_sweep
from .session.session import JavaMissingError as JavaMissingError
from .session.session import SparkMissingError as SparkMissingError
from .session.session import spark_session as spark_session
from .source.source import FORMAT as FORMAT
from .source.source import register as register
from .source.stopping import stop_gracefully as stop_gracefully
from .sweeps.sweep import Sweep as Sweep
from .sweeps.sweep import play_sweep as play_sweep
from .values.progress import source_progress as source_progress
