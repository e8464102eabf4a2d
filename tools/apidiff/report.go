package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// report writes what ours lacks of theirs, one section per subject.
func report(w io.Writer, ours, theirs *state) {
	fmt.Fprintf(w, "1.%d, ours: %s\n1.%d: %s\n", ours.minor, strings.Join(ours.sources, ", "), theirs.minor,
		strings.Join(theirs.sources, ", "))
	writeSection(w, "New kinds", newKinds(ours, theirs))
	writeSection(w, "Kinds that are removed or deprecated", endingKinds(ours, theirs))
	writeSection(w, "New fields", eachType(ours, theirs, newFields))
	writeSection(w, "Fields that are gone or have another type", eachType(ours, theirs, changedFields))
	writeSection(w, "Changed defaults", eachType(ours, theirs, changedDefaults))
	writeSection(w, "New types", newTypes(ours, theirs))
	writeSection(w, "New constants", newConstants(ours, theirs))
	writeSection(w, "New feature gates", newGates(ours, theirs))
	writeSection(w, "Changed feature gates", changedGates(ours, theirs))
	writeSection(w, "Feature gates that are gone", goneGates(ours, theirs))
}

func writeSection(w io.Writer, title string, lines []string) {
	fmt.Fprintf(w, "\n%s (%d)\n", title, len(lines))
	slices.Sort(lines)
	for _, line := range lines {
		fmt.Fprintln(w, "  "+line)
	}
}

// newKinds lists kinds that theirs serves and ours does not. Types that ours has, too, are kinds
// that kube-apiserver does not serve, unless theirs introduces them.
func newKinds(ours, theirs *state) (out []string) {
	for path, pkg := range theirs.packages {
		for name, t := range pkg.types {
			served := ours.kinds[pkg.group+"/"+pkg.version+" "+name]
			known := ours.packages[path] != nil && ours.packages[path].types[name] != nil
			removed := t.removed != 0 && t.removed <= theirs.minor
			if t.kind && !served && !removed && (!known || t.introduced > ours.minor) {
				line := path + " " + name
				if !anyServed(ours, pkg) {
					line += ", of a new group version"
				}
				out = append(out, line)
			}
		}
	}
	return out
}

// anyServed reports whether ours serves a kind of the group version of pkg.
func anyServed(ours *state, pkg *apiPackage) bool {
	for kind := range ours.kinds {
		if strings.HasPrefix(kind, pkg.group+"/"+pkg.version+" ") {
			return true
		}
	}
	return false
}

// endingKinds lists the kinds of ours that theirs does not serve, or deprecates.
func endingKinds(ours, theirs *state) (out []string) {
	for path, pkg := range ours.packages {
		for name := range pkg.types {
			if !ours.kinds[pkg.group+"/"+pkg.version+" "+name] {
				continue
			}
			var now *apiType
			if theirPackage := theirs.packages[path]; theirPackage != nil {
				now = theirPackage.types[name]
			}
			line := path + " " + name
			switch {
			case now == nil:
				out = append(out, line+": type removed")
			case now.removed > ours.minor && now.removed <= theirs.minor:
				out = append(out, fmt.Sprintf("%s: removed in 1.%d", line, now.removed))
			case now.deprecated > ours.minor && now.deprecated <= theirs.minor:
				out = append(out, fmt.Sprintf("%s: deprecated in 1.%d, removed in 1.%d", line, now.deprecated, now.removed))
			}
		}
	}
	return out
}

// eachType calls list for each type that both have, in packages with a kind that this server serves.
func eachType(ours, theirs *state, list func(ours, theirs *apiType) []string) (out []string) {
	for path, pkg := range ours.packages {
		if !anyServed(ours, pkg) || theirs.packages[path] == nil {
			continue
		}
		for name, t := range pkg.types {
			if now := theirs.packages[path].types[name]; now != nil {
				for _, line := range list(t, now) {
					out = append(out, path+" "+name+line)
				}
			}
		}
	}
	return out
}

func newFields(ours, theirs *apiType) (out []string) {
	for name, f := range theirs.fields {
		if _, ok := ours.fields[name]; ok {
			continue
		}
		line := fmt.Sprintf(".%s %s", name, f.typ)
		if f.defaultValue != "" {
			line += ", default " + f.defaultValue
		}
		if f.gate != "" {
			line += ", gate " + f.gate
		}
		out = append(out, line)
	}
	return out
}

func changedFields(ours, theirs *apiType) (out []string) {
	for name, f := range ours.fields {
		now, ok := theirs.fields[name]
		if !ok {
			out = append(out, fmt.Sprintf(".%s: gone", name))
		} else if unqualified(now.typ) != unqualified(f.typ) {
			out = append(out, fmt.Sprintf(".%s: %s -> %s", name, f.typ, now.typ))
		}
	}
	return out
}

// unqualified removes package names, which differ between types of ours and published ones.
func unqualified(typ string) string {
	var out strings.Builder
	word := ""
	for _, r := range typ {
		switch {
		case r == '.':
			word = ""
		case strings.ContainsRune("*[] ", r):
			out.WriteString(word)
			out.WriteRune(r)
			word = ""
		default:
			word += string(r)
		}
	}
	return out.String() + word
}

func changedDefaults(ours, theirs *apiType) (out []string) {
	for name, f := range ours.fields {
		if now, ok := theirs.fields[name]; ok && now.defaultValue != f.defaultValue {
			out = append(out, fmt.Sprintf(".%s: %q -> %q", name, f.defaultValue, now.defaultValue))
		}
	}
	return out
}

// newTypes lists types that are no kinds, of packages that both have.
func newTypes(ours, theirs *state) (out []string) {
	for path, pkg := range ours.packages {
		if !anyServed(ours, pkg) || theirs.packages[path] == nil {
			continue
		}
		for name, t := range theirs.packages[path].types {
			if pkg.types[name] == nil && !t.kind && !strings.HasSuffix(name, "List") {
				out = append(out, fmt.Sprintf("%s %s, fields: %s", path, name,
					strings.Join(slices.Sorted(maps.Keys(t.fields)), ", ")))
			}
		}
	}
	return out
}

func newConstants(ours, theirs *state) (out []string) {
	for path, pkg := range ours.packages {
		if !anyServed(ours, pkg) || theirs.packages[path] == nil {
			continue
		}
		for name, value := range theirs.packages[path].constants {
			if pkg.constants[name] == "" {
				out = append(out, path+" "+value)
			}
		}
	}
	return out
}

func newGates(ours, theirs *state) (out []string) {
	for name, g := range theirs.gates {
		if _, ok := ours.gates[name]; !ok {
			out = append(out, fmt.Sprintf("%s: %v", name, g))
		}
	}
	return out
}

func changedGates(ours, theirs *state) (out []string) {
	for name, g := range theirs.gates {
		if was, ok := ours.gates[name]; ok && was != g {
			out = append(out, fmt.Sprintf("%s: %v -> %v", name, was, g))
		}
	}
	return out
}

func goneGates(ours, theirs *state) (out []string) {
	for name := range ours.gates {
		if _, ok := theirs.gates[name]; !ok {
			out = append(out, name)
		}
	}
	return out
}
