"""The ground floor: settings, signals, forks, HTML, and the check of arguments. Only errors and dtypes stand below."""
