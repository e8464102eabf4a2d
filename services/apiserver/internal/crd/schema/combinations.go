package schema

import "binnacle/services/apiserver/internal/json/tape"

// checkCombination checks anyOf, oneOf, allOf and not.
func (c *checker) checkCombination(n *node, v tape.Ref) int {
	matches := 1
	if n.combination == nil {
		return matches
	}
	if len(n.combination.anyOf) > 0 {
		matches += c.checkAnyOf(n.combination.anyOf, v)
	}
	if len(n.combination.oneOf) > 0 {
		matches += c.checkOneOf(n.combination.oneOf, v)
	}
	if len(n.combination.allOf) > 0 {
		matches += c.checkAllOf(n.combination.allOf, v)
	}
	if n.combination.not != noNode {
		if ok, _ := c.probe(n.combination.not, v); ok {
			c.reportCombination("must not validate the schema (not)")
		}
	}
	return matches
}

// probe checks a branch without reporting its errors.
func (c *checker) probe(at NodeIndex, v tape.Ref) (ok bool, matches int) {
	failuresBefore := c.failures
	c.quiet++
	matches = c.checkKeywords(&c.program.nodes[at], v, tape.None)
	c.quiet--
	ok = c.failures == failuresBefore
	c.failures = failuresBefore
	return ok, matches
}

// reportBranch checks a branch again to report its errors.
func (c *checker) reportBranch(at NodeIndex, v tape.Ref) int {
	return c.checkKeywords(&c.program.nodes[at], v, tape.None)
}

// checkAnyOf reports the errors of the branch with the most passed checks if no branch matches.
func (c *checker) checkAnyOf(branches []NodeIndex, v tape.Ref) int {
	best := noNode
	maximum := 0
	for _, at := range branches {
		ok, matches := c.probe(at, v)
		if ok {
			return matches
		}
		if best == noNode || matches > maximum {
			best, maximum = at, matches
		}
	}
	c.reportCombination("must validate at least one schema (anyOf)")
	if c.quiet > 0 { // Nothing is reported. Checking again would double the time with each nested anyOf.
		return maximum
	}
	return c.reportBranch(best, v)
}

// checkOneOf is checkAnyOf, except that exactly one branch must match.
func (c *checker) checkOneOf(branches []NodeIndex, v tape.Ref) int {
	best := noNode
	maximum := 0
	valid := 0
	matchesOfValid := 0
	for _, at := range branches {
		ok, matches := c.probe(at, v)
		switch {
		case ok:
			valid++
			if valid == 1 {
				matchesOfValid = matches
			}
		case best == noNode || matches > maximum:
			best, maximum = at, matches
		}
	}
	switch valid {
	case 1:
		return matchesOfValid
	case 0:
		c.reportCombination("must validate one and only one schema (oneOf). Found none valid")
		if c.quiet > 0 {
			return maximum
		}
		return c.reportBranch(best, v)
	}
	c.reportCombination("must validate one and only one schema (oneOf). Found %d valid alternatives", valid)
	return 0
}

// checkAllOf reports the errors of all branches.
func (c *checker) checkAllOf(branches []NodeIndex, v tape.Ref) int {
	matches := 0
	valid := 0
	for _, at := range branches {
		failuresBefore := c.failures
		matches += c.reportBranch(at, v)
		if c.failures == failuresBefore {
			valid++
		}
	}
	switch valid {
	case len(branches):
	case 0:
		c.reportCombination("must validate all the schemas (allOf). None validated")
	default:
		c.reportCombination("must validate all the schemas (allOf)")
	}
	return matches
}
