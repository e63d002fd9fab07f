"""The `clocktuner` command. Parsing lives here, work elsewhere; heavy parts are imported where they are used."""
