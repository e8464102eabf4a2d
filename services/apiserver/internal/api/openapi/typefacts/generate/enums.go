package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// value is a value of an enum.
type value struct{ text, description string }

// blanks matches white space, which becomes a single space in descriptions.
var blanks = regexp.MustCompile(`\s+`)

// collectEnums returns the values of all enums in the given packages, sorted. The keys are the full
// names of the enum types. If several constants have the same value, betterDoc selects the
// description. The type of a constant may be an alias of an enum, and its value may be a constant
// of another package.
func collectEnums(all []*source) map[string][]value {
	packages := map[string]*source{} // by path
	aliases := map[string]string{}   // aliased type by alias
	for _, s := range all {
		packages[s.path] = s
		for _, a := range s.aliases {
			aliases[a.name] = a.of
		}
	}
	enumTypes := findEnums(all)
	for _, s := range all {
		for _, constant := range s.typed {
			if of, ok := aliases[constant.typ]; ok {
				constant.typ = of
			}
			values, ok := enumTypes[constant.typ]
			if !ok {
				continue
			}
			if constant.equals != "" {
				constant.text, ok = resolveConstant(packages, constant.equals)
				if !ok {
					continue
				}
			}
			constant.doc = strings.ReplaceAll(constant.doc, "\n", " ")
			if old, ok := values[constant.text]; !ok || betterDoc(constant.doc, old.doc) {
				values[constant.text] = constant
			}
		}
	}
	out := map[string][]value{}
	for name, values := range enumTypes {
		for _, text := range slices.Sorted(maps.Keys(values)) {
			constant := values[text]
			doc := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(constant.doc), constant.name))
			out[name] = append(out[name], value{text: text, description: blanks.ReplaceAllString(doc, " ")})
		}
	}
	return out
}

// betterDoc reports whether the description doc of a value is better than old. The longer one is
// better. If both have the same length, the alphabetically first one is better, so that the result
// does not depend on the order of the constants.
func betterDoc(doc, old string) bool {
	if len(doc) != len(old) {
		return len(doc) > len(old)
	}
	return doc < old
}

// findEnums returns an empty map of constants, by value, for each enum, by the full name of its
// type. An enum is a type whose comment has the mark +enum. If the type has an alias, the alias
// needs the mark too, as in the generator of Kubernetes.
func findEnums(all []*source) map[string]map[string]constant {
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

// resolveConstant returns the value of a constant, given its full name. It follows constants that
// are defined by another constant. It returns false if a package or constant is unknown.
func resolveConstant(packages map[string]*source, name string) (string, bool) {
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
