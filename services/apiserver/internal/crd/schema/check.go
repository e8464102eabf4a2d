package schema

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/json/tape"
)

// Check checks a resource against the schema. old is the resource before an update, or nil on a
// create. With ratchets, errors in values that have not changed are tolerated. If the check takes
// long, Check calls costly once and then continues. costly may be nil.
func (p *Program) Check(doc, old *tape.Doc, ratchets bool, costly func()) Report {
	var report Report
	before := tape.None
	if ratchets {
		before = rootOf(old)
	}
	report.Schema, report.Compared = p.checkValue(Root, doc, tape.Root, old, before, nil, costly)
	report.Embedded = p.checkEmbeddedResources(doc, nil)
	report.Lists = p.checkLists(doc, nil)
	if len(report.Lists) > 0 && old != nil && len(p.checkLists(old, nil)) > 0 {
		report.Lists = nil
	}
	return report
}

// CheckStatus checks a resource against the schema when only its status may have changed. The
// fields in Report.Schema start with status, but their messages do not mention it.
func (p *Program) CheckStatus(doc, old *tape.Doc, ratchets bool, costly func()) Report {
	var report Report
	status := doc.Find(tape.Root, "status")
	if at := p.Property(Root, "status"); status != tape.None && at != NoNode {
		before := tape.None
		if old != nil && ratchets {
			before = old.Find(tape.Root, "status")
		}
		// A null equals an absent old status.
		isUnchangedNull := old != nil && ratchets && before == tape.None && doc.Kind(status) == tape.Null
		if !isUnchangedNull {
			report.Schema, report.Compared = p.checkValue(at, doc, status, old, before, field.NewPath("status"), costly)
		}
	}
	report.Lists = p.checkLists(doc, nil)
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

// checkValue checks a value of doc against the schema of a node. before is the value of old with
// which it is compared, or tape.None. base is the path of the value. checkValue also returns the time spent on
// comparing values.
func (p *Program) checkValue(
	at NodeIndex,
	doc *tape.Doc,
	value tape.Ref,
	old *tape.Doc,
	before tape.Ref,
	base *field.Path,
	costly func(),
) (field.ErrorList, time.Duration) {
	c := checker{Comparer: Comparer{program: p, doc: doc, old: old}, base: base, costly: costly}
	return c.checkAll(at, value, before), c.compared
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
func (c *checker) checkAndRatchet(at NodeIndex, value, old tape.Ref) int {
	n := &c.program.nodes[at]
	failuresBefore, errsBefore := c.failures, len(c.errs)
	matches := c.checkKeywords(n, value, old)
	if c.failures > failuresBefore && old != tape.None {
		start := time.Now()
		if c.Equal(at, value, old) {
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
func (c *checker) checkKeywords(schemaNode *node, value, old tape.Ref) int {
	c.addCost(perNode)
	if c.spent > c.program.maxCost {
		return 0
	}
	kind := c.doc.Kind(value)
	if kind == tape.Null {
		return c.checkNull(schemaNode, value)
	}
	matches := 1
	if schemaNode.hasType || schemaNode.text != nil && schemaNode.text.format != "" {
		matches++
		if c.checkType(schemaNode, value, kind) {
			matches++
		}
	}
	matches += 1 + c.checkCombination(schemaNode, value)
	switch kind {
	case tape.String:
		matches += 1 + c.checkText(schemaNode, value)
	case tape.Number:
		matches += 2
		c.checkNumber(schemaNode, value)
	case tape.Array:
		matches += 2 + c.checkArray(schemaNode, value, old)
	}
	c.checkEnum(schemaNode, value)
	matches++
	if kind == tape.Object {
		matches += 1 + c.checkObject(schemaNode, value, old)
	}
	return matches
}

// checkNull checks a null, for which only the type and the enum matter.
func (c *checker) checkNull(schemaNode *node, value tape.Ref) int {
	matches := 1
	if isForbidden := schemaNode.hasType && schemaNode.types&typeNull == 0 && !schemaNode.nullable; isForbidden {
		c.reportWrongType(schemaNode.typeText, "null")
		matches = 0
	}
	c.checkEnum(schemaNode, value)
	return matches
}

// checkArray checks the items of an array.
func (c *checker) checkArray(schemaNode *node, value, old tape.Ref) int {
	matches := 0
	if schemaNode.items != NoNode {
		i := int32(0)
		for item, end := c.doc.First(value), c.doc.Next(value); item < end; item = c.doc.Next(item) {
			c.steps = append(c.steps, step{kind: stepIndex, index: i})
			matches += c.checkAndRatchet(schemaNode.items, item, c.keyedItem(schemaNode, old, item))
			c.steps = c.steps[:len(c.steps)-1]
			i++
		}
	}
	if schemaNode.bounds != nil {
		c.checkItems(schemaNode.bounds, int64(c.doc.Len(value)))
	}
	return matches
}

// checkObject checks the members of an object.
func (c *checker) checkObject(schemaNode *node, value, old tape.Ref) int {
	if schemaNode.bounds != nil {
		c.checkProps(schemaNode.bounds, int64(c.doc.Len(value)))
	}
	matches := 0
	if schemaNode.additional == additionalForbidden || schemaNode.additional == additionalSchema {
		matches += c.checkUnnamed(schemaNode, value, old)
	}

	// 1. Check the members that the schema names.
	seen := newIndexSet(len(schemaNode.props))
	next := 0
	if len(schemaNode.props) > 0 {
		for key, end := c.doc.First(value), c.doc.Next(value); key < end; key = c.doc.Next(key + 1) {
			i := schemaNode.find(c.doc, key, next)
			if i < 0 {
				continue
			}
			next = i + 1
			seen.set(i)
			matches += c.checkMember(schemaNode.props[i].node, stepProp, key, old)
		}
	}

	// 2. Report missing properties.
	for _, r := range schemaNode.required {
		isPresent := r.prop >= 0 && seen.has(r.prop) || r.prop < 0 && c.doc.Find(value, r.name) != tape.None
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
func (c *checker) checkUnnamed(schemaNode *node, value, old tape.Ref) int {
	matches := 0
	next := 0
	for key, end := c.doc.First(value), c.doc.Next(value); key < end; key = c.doc.Next(key + 1) {
		if i := schemaNode.find(c.doc, key, next); i >= 0 {
			next = i + 1
			continue
		}
		if schemaNode.additional == additionalForbidden {
			c.reportForbidden(key)
			continue
		}
		matches += c.checkMember(schemaNode.values, stepValue, key, old)
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
func (c *checker) checkCombination(schemaNode *node, value tape.Ref) int {
	matches := 1
	if schemaNode.combination == nil {
		return matches
	}
	if len(schemaNode.combination.anyOf) > 0 {
		matches += c.checkAnyOf(schemaNode.combination.anyOf, value)
	}
	if len(schemaNode.combination.oneOf) > 0 {
		matches += c.checkOneOf(schemaNode.combination.oneOf, value)
	}
	if len(schemaNode.combination.allOf) > 0 {
		matches += c.checkAllOf(schemaNode.combination.allOf, value)
	}
	if schemaNode.combination.not != NoNode {
		if ok, _ := c.probe(schemaNode.combination.not, value); ok {
			c.reportCombination("must not validate the schema (not)")
		}
	}
	return matches
}

// probe checks a branch without reporting its errors.
func (c *checker) probe(at NodeIndex, value tape.Ref) (ok bool, matches int) {
	failuresBefore := c.failures
	c.quiet++
	matches = c.checkKeywords(&c.program.nodes[at], value, tape.None)
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
func (c *checker) checkAnyOf(branches []NodeIndex, value tape.Ref) int {
	best, bestMatches := NoNode, 0
	for _, at := range branches {
		ok, matches := c.probe(at, value)
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
	return c.reportBranch(best, value)
}

// checkOneOf is checkAnyOf, except that exactly one branch must match.
func (c *checker) checkOneOf(branches []NodeIndex, value tape.Ref) int {
	best, bestMatches := NoNode, 0 // of the invalid branches
	valid, firstValidMatches := 0, 0
	for _, at := range branches {
		ok, matches := c.probe(at, value)
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
		return c.reportBranch(best, value)
	}
	c.reportCombination("must validate one and only one schema (oneOf). Found %d valid alternatives", valid)
	return 0
}

// checkAllOf reports the errors of all branches.
func (c *checker) checkAllOf(branches []NodeIndex, value tape.Ref) int {
	matches := 0
	valid := 0
	for _, at := range branches {
		failuresBefore := c.failures
		matches += c.reportBranch(at, value)
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
