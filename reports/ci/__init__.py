"""Reports that continuous integration reads: findings and rules that fail, in the formats of other tools."""
