"""Why: what was decided and measured, in words and figures; advice for refused pods. It decides nothing."""
