package schema

import (
	"regexp"
	"sync"
)

// pattern is a regular expression that is compiled when it is first needed:
// compiled ones are large.
type pattern struct {
	text string
	once sync.Once
	re   *regexp.Regexp
	err  error
}

func (p *pattern) get() (*regexp.Regexp, error) {
	p.once.Do(func() { p.re, p.err = regexp.Compile(p.text) })
	return p.re, p.err
}
