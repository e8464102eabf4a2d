package schema

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/json/tape"
)

// Report is the result of a check. Its groups are separate because other checks of a resource
// report between them: errors of the scale come after Schema.
type Report struct {
	// Schema holds the violations of the schema's keywords.
	Schema field.ErrorList
	// Embedded holds the errors in the metadata of embedded resources.
	Embedded field.ErrorList
	// Lists holds the duplicates in lists of type set and map.
	Lists field.ErrorList
	// Compared is the time spent on comparing invalid values with the old ones.
	Compared time.Duration
}

// All returns all errors in Kubernetes' order. between are the errors of the scale.
func (r Report) All(between ...*field.Error) field.ErrorList {
	var all field.ErrorList
	all = append(all, r.Schema...)
	all = append(all, between...)
	all = append(all, r.Embedded...)
	return append(all, r.Lists...)
}

// Check checks a resource against the schema. old is the resource before an update, or nil on a
// create. With ratchets, errors in values that have not changed are tolerated. If the check takes
// long, Check calls costly once and then continues. costly may be nil.
func (p *Program) Check(d, old *tape.Doc, ratchets bool, costly func()) Report {
	var r Report
	before := tape.None
	if ratchets {
		before = rootOf(old)
	}
	r.Schema, r.Compared = p.checkValue(root, d, tape.Root, old, before, nil, costly)
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
	var r Report
	status := d.Find(tape.Root, "status")
	if at := p.Property(root, "status"); status != tape.None && at != noNode {
		before := tape.None
		if old != nil && ratchets {
			before = old.Find(tape.Root, "status")
		}
		// A null equals an absent old status.
		if old == nil || !ratchets || before != tape.None || d.Kind(status) != tape.Null {
			r.Schema, r.Compared = p.checkValue(at, d, status, old, before, field.NewPath("status"), costly)
		}
	}
	r.Lists = p.checkLists(d, nil)
	if len(r.Lists) > 0 && old != nil && len(p.checkLists(old, nil)) > 0 {
		r.Lists = nil
	}
	return r
}

// StructuralError returns the error that replaces the schema's rules if the errors found make the
// rules meaningless. Otherwise it returns nil.
func StructuralError(found field.ErrorList) *field.Error {
	for _, e := range found {
		switch e.Type {
		case field.ErrorTypeNotSupported,
			field.ErrorTypeRequired,
			field.ErrorTypeTooLong,
			field.ErrorTypeTooMany,
			field.ErrorTypeTypeInvalid:
			return field.Invalid(nil, nil,
				"some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")
		}
	}
	return nil
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
// The check functions return the number of passed checks, counted as in k8s.io/kube-openapi. It decides
// which branch of an anyOf or oneOf reports its errors: the one that passed the most checks.
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

	costly func()
	spent  int // see spend
}

// checkValue checks the value v against the schema at a place. base is the path of v. It also
// returns the time spent on comparing v with the old value.
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
		matches := 1
		if n.hasType && n.types&typeNull == 0 && !n.nullable {
			c.reportWrongType(n.typeText, "null")
			matches = 0
		}
		c.checkEnum(n, v)
		return matches
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

// checkArray checks the items of an array.
func (c *checker) checkArray(n *node, v, old tape.Ref) int {
	matches := 0
	if n.items != noNode {
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
	if n.additional == never || n.additional == typed {
		matches += c.checkUnnamed(n, v, old)
	}
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
		if n.additional == never {
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
		if len(c.steps) > 0 || !c.doc.IsText(key, "kind") && !c.doc.IsText(key, "apiVersion") {
			before = c.old.Find(old, c.doc.String(key))
		}
	}
	c.steps = append(c.steps, step{kind: kind, key: key})
	matches := c.checkAndRatchet(at, key+1, before)
	c.steps = c.steps[:len(c.steps)-1]
	return matches
}
