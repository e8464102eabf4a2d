package schema

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/json/tape"
)

// Check checks a resource against the schema. old is the resource before an update, or nil on a
// create. With ratchets, errors in values that have not changed are tolerated. If the check takes
// long, Check calls costly once and then continues. costly may be nil.
func (p *Program) Check(d, old *tape.Doc, ratchets bool, costly func()) Report {
	var r Report
	before := tape.None
	if ratchets {
		before = rootOf(old)
	}
	r.Schema, r.Compared = p.checkValue(Root, d, tape.Root, old, before, nil, costly)
	r.Embedded = p.checkEmbeddedResources(d, nil)
	r.Lists = p.checkLists(d, nil)
	if len(r.Lists) > 0 && old != nil && len(p.checkLists(old, nil)) > 0 {
		r.Lists = nil
	}
	return r
}

// CheckStatus checks a resource against the schema when only its status may have changed. The
// fields in Report.Schema start with status, but their messages do not mention it.
func (p *Program) CheckStatus(d, old *tape.Doc, ratchets bool, costly func()) Report {
	var report Report
	status := d.Find(tape.Root, "status")
	if at := p.Property(Root, "status"); status != tape.None && at != NoNode {
		before := tape.None
		if old != nil && ratchets {
			before = old.Find(tape.Root, "status")
		}
		// A null equals an absent old status.
		isUnchangedNull := old != nil && ratchets && before == tape.None && d.Kind(status) == tape.Null
		if !isUnchangedNull {
			report.Schema, report.Compared = p.checkValue(at, d, status, old, before, field.NewPath("status"), costly)
		}
	}
	report.Lists = p.checkLists(d, nil)
	if len(report.Lists) > 0 && old != nil && len(p.checkLists(old, nil)) > 0 {
		report.Lists = nil
	}
	return report
}

// rootOf returns the root of a document, or tape.None if there is no document.
func rootOf(old *tape.Doc) tape.Ref {
	if old == nil {
		return tape.None
	}
	return tape.Root
}

// checker checks values against the keywords of schemas.
//
// The check functions return the number of passed checks, counted as in k8s.io/kube-openapi. If no
// branch of an anyOf or oneOf matches, the branch that passed the most checks reports its errors.
type checker struct {
	Comparer
	base     *field.Path
	steps    []step
	failures int // number of failed checks
	quiet    int // while positive, no errors are recorded
	// errs holds the errors of failed checks without duplicates, up to maxErrors and maxErrorBytes.
	errs         field.ErrorList
	size         int               // of errs in bytes
	seen         map[errorKey]bool // the errors in errs
	reportedEnum *node             // the node whose enum enumText lists
	enumText     string
	// compared is the time spent on comparing values with the old ones.
	compared time.Duration

	costly func() // called once when the check turns out to be costly; then nil
	spent  int    // cost so far; see addCost
}

// checkValue checks the value v of d against the schema of a node. before is the value of old with
// which v is compared, or tape.None. base is the path of v. checkValue also returns the time spent on
// comparing values.
func (p *Program) checkValue(
	at NodeIndex,
	d *tape.Doc,
	v tape.Ref,
	old *tape.Doc,
	before tape.Ref,
	base *field.Path,
	costly func(),
) (field.ErrorList, time.Duration) {
	c := checker{Comparer: Comparer{program: p, doc: d, old: old}, base: base, costly: costly}
	return c.checkAll(at, v, before), c.compared
}

// checkAll checks a value and returns all errors.
func (c *checker) checkAll(at NodeIndex, v, before tape.Ref) field.ErrorList {
	c.checkAndRatchet(at, v, before)
	if c.spent > c.program.maxCost {
		e := field.TooLong(c.base, "", c.program.maxCost) // reported in place of the unchecked values
		e.Detail = "is too complex to validate: too many values times schemas"
		c.errs = append(c.errs, e)
	}
	return c.errs
}

// checkAndRatchet checks a value, and drops its errors if it equals the old value. old is tape.None
// if there is none. It returns the number of passed checks.
func (c *checker) checkAndRatchet(at NodeIndex, v, old tape.Ref) int {
	n := &c.program.nodes[at]
	failuresBefore, errsBefore := c.failures, len(c.errs)
	matches := c.checkKeywords(n, v, old)
	if c.failures > failuresBefore && old != tape.None {
		start := time.Now()
		if c.Equal(at, v, old) {
			c.dropErrors(failuresBefore, errsBefore)
		}
		c.compared += time.Since(start)
	}
	return matches
}

// dropErrors removes the errors after the first errCount ones, and restores the number of failed checks.
func (c *checker) dropErrors(failures, errCount int) {
	for _, e := range c.errs[errCount:] {
		key := errorKeyOf(e)
		delete(c.seen, key)
		c.size -= key.size()
	}
	c.failures = failures
	c.errs = c.errs[:errCount]
}

// checkKeywords checks a value against all keywords of a node. It returns the number of passed
// checks.
func (c *checker) checkKeywords(n *node, v, old tape.Ref) int {
	c.addCost(perNode)
	if c.spent > c.program.maxCost {
		return 0
	}
	kind := c.doc.Kind(v)
	if kind == tape.Null {
		return c.checkNull(n, v)
	}
	matches := 1
	if n.hasType || n.text != nil && n.text.format != "" {
		matches++
		if c.checkType(n, v, kind) {
			matches++
		}
	}
	matches += 1 + c.checkCombination(n, v)
	switch kind {
	case tape.String:
		matches += 1 + c.checkText(n, v)
	case tape.Number:
		matches += 2
		c.checkNumber(n, v)
	case tape.Array:
		matches += 2 + c.checkArray(n, v, old)
	}
	c.checkEnum(n, v)
	matches++
	if kind == tape.Object {
		matches += 1 + c.checkObject(n, v, old)
	}
	return matches
}

// checkNull checks a null, for which only the type and the enum matter.
func (c *checker) checkNull(n *node, v tape.Ref) int {
	matches := 1
	if isForbidden := n.hasType && n.types&typeNull == 0 && !n.nullable; isForbidden {
		c.reportWrongType(n.typeText, "null")
		matches = 0
	}
	c.checkEnum(n, v)
	return matches
}

// checkArray checks the items of an array.
func (c *checker) checkArray(n *node, v, old tape.Ref) int {
	matches := 0
	if n.items != NoNode {
		i := int32(0)
		for item, end := c.doc.First(v), c.doc.Next(v); item < end; item = c.doc.Next(item) {
			c.steps = append(c.steps, step{kind: stepIndex, index: i})
			matches += c.checkAndRatchet(n.items, item, c.keyedItem(n, old, item))
			c.steps = c.steps[:len(c.steps)-1]
			i++
		}
	}
	if n.bounds != nil {
		c.checkItems(n.bounds, int64(c.doc.Len(v)))
	}
	return matches
}

// checkObject checks the members of an object.
func (c *checker) checkObject(n *node, v, old tape.Ref) int {
	if n.bounds != nil {
		c.checkProps(n.bounds, int64(c.doc.Len(v)))
	}
	matches := 0
	if n.additional == additionalForbidden || n.additional == additionalSchema {
		matches += c.checkUnnamed(n, v, old)
	}

	// 1. Check the members that the schema names.
	seen := newIndexSet(len(n.props))
	next := 0
	if len(n.props) > 0 {
		for k, end := c.doc.First(v), c.doc.Next(v); k < end; k = c.doc.Next(k + 1) {
			i := n.find(c.doc, k, next)
			if i < 0 {
				continue
			}
			next = i + 1
			seen.set(i)
			matches += c.checkMember(n.props[i].node, stepProp, k, old)
		}
	}

	// 2. Report missing properties.
	for _, r := range n.required {
		isPresent := r.prop >= 0 && seen.has(r.prop) || r.prop < 0 && c.doc.Find(v, r.name) != tape.None
		if isPresent {
			continue
		}
		c.reportMissing(r.name)
		if c.spent > c.program.maxCost {
			break
		}
	}
	return matches
}

// checkUnnamed checks members that the schema does not name.
func (c *checker) checkUnnamed(n *node, v, old tape.Ref) int {
	matches := 0
	next := 0
	for k, end := c.doc.First(v), c.doc.Next(v); k < end; k = c.doc.Next(k + 1) {
		if i := n.find(c.doc, k, next); i >= 0 {
			next = i + 1
			continue
		}
		if n.additional == additionalForbidden {
			c.reportForbidden(k)
			continue
		}
		matches += c.checkMember(n.values, stepValue, k, old)
	}
	return matches
}

// checkMember checks one member of an object.
func (c *checker) checkMember(at NodeIndex, kind stepKind, key, old tape.Ref) int {
	before := tape.None
	if old != tape.None && c.old.Kind(old) == tape.Object {
		// apiVersion and kind of the resource may differ from those that the client sent. So it is
		// unknown whether they have changed.
		isTypeOfResource := len(c.steps) == 0 && (c.doc.IsText(key, "kind") || c.doc.IsText(key, "apiVersion"))
		if !isTypeOfResource {
			before = c.old.Find(old, c.doc.String(key))
		}
	}
	c.steps = append(c.steps, step{kind: kind, key: key})
	matches := c.checkAndRatchet(at, key+1, before)
	c.steps = c.steps[:len(c.steps)-1]
	return matches
}

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
	if n.combination.not != NoNode {
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
	best, bestMatches := NoNode, 0
	for _, at := range branches {
		ok, matches := c.probe(at, v)
		if ok {
			return matches
		}
		if best == NoNode || matches > bestMatches {
			best, bestMatches = at, matches
		}
	}
	c.reportCombination("must validate at least one schema (anyOf)")
	if c.quiet > 0 { // Nothing is reported. Checking again would double the time with each nested anyOf.
		return bestMatches
	}
	return c.reportBranch(best, v)
}

// checkOneOf is checkAnyOf, except that exactly one branch must match.
func (c *checker) checkOneOf(branches []NodeIndex, v tape.Ref) int {
	best, bestMatches := NoNode, 0 // of the invalid branches
	valid, firstValidMatches := 0, 0
	for _, at := range branches {
		ok, matches := c.probe(at, v)
		switch {
		case ok:
			valid++
			if valid == 1 {
				firstValidMatches = matches
			}
		case best == NoNode || matches > bestMatches:
			best, bestMatches = at, matches
		}
	}
	switch valid {
	case 1:
		return firstValidMatches
	case 0:
		c.reportCombination("must validate one and only one schema (oneOf). Found none valid")
		if c.quiet > 0 {
			return bestMatches
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
