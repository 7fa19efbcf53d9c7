"""The lowest layer: settings, signals, forks, tracebacks, HTML, argument checks. It imports only errors and dtypes."""
