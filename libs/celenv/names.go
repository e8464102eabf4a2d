package celenv

import "strings"

// reserved holds the reserved words of CEL.
var reserved = func() map[string]bool {
	words := map[string]bool{}
	for w := range strings.FieldsSeq("true false null in as break const continue else for function if import let loop package namespace return var void while") {
		words[w] = true
	}
	return words
}()

// Escape returns the name that expressions use for a property of a typed object, or false if
// expressions cannot access the property.
func Escape(name string) (string, bool) {
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		return "", false
	}
	if reserved[name] {
		return "__" + name + "__", true
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c == '_' && i+1 < len(name) && name[i+1] == '_':
			b.WriteString("__underscores__")
			i++
		case c == '.':
			b.WriteString("__dot__")
		case c == '-':
			b.WriteString("__dash__")
		case c == '/':
			b.WriteString("__slash__")
		case c == '_', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
			b.WriteByte(c)
		default:
			return "", false
		}
	}
	return b.String(), true
}

// Reserved reports whether a name is a reserved word of CEL. Expressions can access a property with
// such a name also by its unescaped name.
func Reserved(name string) bool { return reserved[name] }
