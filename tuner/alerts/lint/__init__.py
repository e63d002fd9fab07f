"""A linter for Prometheus rules that needs no Prometheus.

It looks for what pint (cloudflare/pint) looks for, as far as files alone can tell: rules that can never fire or always
do, that divide by nothing, lose the labels they speak of, or cannot be acted upon by who is woken. Each check is one
function and one row of `tuner.alerts.lint.catalogue.CHECKS`.
"""
