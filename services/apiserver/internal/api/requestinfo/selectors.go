package requestinfo

import (
	"math"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// MaxRequirements is the maximum number of requirements in the selectors of a request. Each
// requirement is matched against every object and every watch event.
const MaxRequirements = 1000

// TooManySelectorTerms reports whether the selectors have more than MaxRequirements requirements.
// The server rejects such a request before it parses the selectors and authorizes the request.
func (i *Info) TooManySelectorTerms() bool {
	return countRequirements(MaxRequirements, i.FieldSelector, i.LabelSelector) > MaxRequirements
}

// Requirements returns the number of requirements in selectors without parsing them.
func Requirements(selectors ...string) (n int) { return countRequirements(math.MaxInt, selectors...) }

// countRequirements returns the number of requirements in selectors. It stops counting above
// limit. A comma separates requirements, unless it is inside of parentheses or escaped:
//
//	app=a,tier in (b,c)   2
//	spec.x=a\,b           1
func countRequirements(limit int, selectors ...string) (count int) {
	for _, s := range selectors {
		if s == "" {
			continue
		}
		count++
		depth := 0 // of open parentheses
		for i := 0; i < len(s) && count <= limit; i++ {
			switch s[i] {
			case '\\': // escapes the next character of a field value
				i++
			case '(':
				depth++
			case ')':
				depth--
			case ',':
				if depth <= 0 {
					count++
				}
			}
		}
	}
	return count
}

// Selectors parses the selectors of a request once for flow control, authorizers and the handler,
// because parsing takes about 2 µs per value. It is safe for concurrent use.
type Selectors struct {
	label, field string

	labelsOnce, fieldsOnce sync.Once
	labels                 labels.Selector
	fields                 fields.Selector
	labelsErr, fieldsErr   error
}

// Labels returns the parsed label selector.
func (s *Selectors) Labels() (labels.Selector, error) {
	s.labelsOnce.Do(func() { s.labels, s.labelsErr = labels.Parse(s.label) })
	return s.labels, s.labelsErr
}

// Fields returns the parsed field selector, with field names as the client sent them.
func (s *Selectors) Fields() (fields.Selector, error) {
	s.fieldsOnce.Do(func() { s.fields, s.fieldsErr = fields.ParseSelector(s.field) })
	return s.fields, s.fieldsErr
}

// Selectors returns a label and a field selector. It reuses the parsed selectors of the request if
// the texts are the same.
func (i *Info) Selectors(label, field string) *Selectors {
	if s := i.selectors; s != nil && s.label == label && s.field == field {
		return s
	}
	return &Selectors{label: label, field: field}
}

// OwnSelectors returns the selectors of the request.
func (i *Info) OwnSelectors() *Selectors { return i.Selectors(i.LabelSelector, i.FieldSelector) }
