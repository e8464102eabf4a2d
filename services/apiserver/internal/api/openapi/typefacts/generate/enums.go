package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// value is a value of an enum.
type value struct{ text, description string }

var blanks = regexp.MustCompile(`\s+`)

// enums returns the values of all enums, by the full names of their types. If several constants
// have one value, the longest comment counts. A constant may have an alias as its type, and may
// equal a constant of another package.
func enums(all []*source) map[string][]value {
	packages, aliases := map[string]*source{}, map[string]string{}
	for _, s := range all {
		packages[s.path] = s
		for _, a := range s.aliases {
			aliases[a.name] = a.of
		}
	}
	docs := marked(all)
	for _, s := range all {
		for _, c := range s.typed {
			if of, ok := aliases[c.typ]; ok {
				c.typ = of
			}
			values, ok := docs[c.typ]
			if !ok {
				continue
			}
			if c.equals != "" {
				c.text, ok = text(packages, c.equals)
				if !ok {
					continue
				}
			}
			c.doc = strings.ReplaceAll(c.doc, "\n", " ")
			if old, ok := values[c.text]; !ok || len(old.doc) < len(c.doc) || len(old.doc) == len(c.doc) && old.doc > c.doc {
				values[c.text] = c
			}
		}
	}
	out := map[string][]value{}
	for name, values := range docs {
		for _, text := range slices.Sorted(maps.Keys(values)) {
			c := values[text]
			doc := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(c.doc), c.name))
			out[name] = append(out[name], value{text, blanks.ReplaceAllString(doc, " ")})
		}
	}
	return out
}

// marked returns an empty map of constants for each enum. The generator of Kubernetes takes the
// mark from the comment of an alias if the type has one. So a type with an alias without the mark
// is not an enum.
func marked(all []*source) map[string]map[string]constant {
	out := map[string]map[string]constant{}
	for _, s := range all {
		for name := range s.enums {
			out[s.path+"."+name] = map[string]constant{}
		}
	}
	for _, s := range all {
		for _, a := range s.aliases {
			if !a.enum {
				delete(out, a.of)
			}
		}
	}
	return out
}

// text returns the value of a constant, given its full name.
func text(packages map[string]*source, name string) (string, bool) {
	for name != "" {
		dot := strings.LastIndexByte(name, '.')
		s := packages[name[:dot]]
		if s == nil {
			return "", false
		}
		if v, ok := s.consts[name[dot+1:]]; ok {
			return v, true
		}
		name = s.linked[name[dot+1:]]
	}
	return "", false
}
