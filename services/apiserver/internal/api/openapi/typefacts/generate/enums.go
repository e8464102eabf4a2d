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

// enums returns the values of all enums in the given packages. The keys are the full names of the
// enum types. If several constants have the same value, betterDoc selects the description. The type
// of a constant may be an alias of an enum, and its value may be a constant of another package.
func enums(all []*source) map[string][]value {
	packages, aliases := map[string]*source{}, map[string]string{}
	for _, s := range all {
		packages[s.path] = s
		for _, a := range s.aliases {
			aliases[a.name] = a.of
		}
	}
	enumTypes := marked(all)
	for _, s := range all {
		for _, c := range s.typed {
			if of, ok := aliases[c.typ]; ok {
				c.typ = of
			}
			values, ok := enumTypes[c.typ]
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
			if old, ok := values[c.text]; !ok || betterDoc(c.doc, old.doc) {
				values[c.text] = c
			}
		}
	}
	out := map[string][]value{}
	for name, values := range enumTypes {
		for _, text := range slices.Sorted(maps.Keys(values)) {
			c := values[text]
			doc := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(c.doc), c.name))
			out[name] = append(out[name], value{text, blanks.ReplaceAllString(doc, " ")})
		}
	}
	return out
}

// betterDoc reports whether doc replaces the description old of the same value. The longer one is
// better. Of two with equal length, the alphabetically first is better, so that the result does not
// depend on the order of the constants.
func betterDoc(doc, old string) bool {
	if len(doc) != len(old) {
		return len(doc) > len(old)
	}
	return doc < old
}

// marked returns an empty map for each enum, by the full name of its type. The key of an inner map
// is the value of a constant. An enum is a type whose comment has the enum mark. If the type has an
// alias, the alias needs the mark too, as in the generator of Kubernetes.
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

// text returns the value of a constant, given its full name. It follows constants that equal
// another constant. It returns false if a package or constant is unknown.
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
