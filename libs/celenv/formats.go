package celenv

import (
	"net/url"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

var formatType = cel.ObjectType("kubernetes.NamedFormat")

// format is a named format of texts.
type format struct {
	opaque
	name string
	// pattern is the length of the format's regular expression. The cost depends on it.
	pattern int
	check   func(string) []string
}

// ConvertToType implements ref.Val.
func (f *format) ConvertToType(to ref.Type) ref.Val { return f.convert(f, to) }

// Value implements ref.Val.
func (f *format) Value() any { return f }

// Equal implements ref.Val.
func (f *format) Equal(other ref.Val) ref.Val {
	o, ok := other.(*format)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	return types.Bool(f.name == o.name)
}

const (
	labelPattern, valuePattern, subdomainPattern = 30, 40, 60
	// uriPattern and bytePattern are the lengths of regular expressions that are not used.
	uriPattern, bytePattern = 1103, 84
)

func formats() map[string]*format {
	named := func(check func(string, bool) []string, prefix bool) func(string) []string {
		return func(s string) []string { return check(s, prefix) }
	}
	known := func(name, problem string) func(string) []string {
		return func(s string) []string {
			if !strfmt.Default.Validates(name, s) {
				return []string{problem}
			}
			return nil
		}
	}
	list := map[string]*format{
		"dns1123Label":           {pattern: labelPattern, check: named(apivalidation.NameIsDNSLabel, false)},
		"dns1123LabelPrefix":     {pattern: labelPattern, check: named(apivalidation.NameIsDNSLabel, true)},
		"dns1123Subdomain":       {pattern: subdomainPattern, check: named(apivalidation.NameIsDNSSubdomain, false)},
		"dns1123SubdomainPrefix": {pattern: subdomainPattern, check: named(apivalidation.NameIsDNSSubdomain, true)},
		"dns1035Label":           {pattern: labelPattern, check: named(apivalidation.NameIsDNS1035Label, false)},
		"dns1035LabelPrefix":     {pattern: labelPattern, check: named(apivalidation.NameIsDNS1035Label, true)},
		"qualifiedName":          {pattern: subdomainPattern, check: validation.IsQualifiedName},
		"labelValue":             {pattern: valuePattern, check: validation.IsValidLabelValue},
		"uri":                    {pattern: uriPattern, check: checkURI},
		"uuid":                   {pattern: len(strfmt.UUIDPattern), check: known("uuid", "does not match the UUID format")},
		"byte":                   {pattern: bytePattern, check: known("byte", "invalid base64")},
		"date":                   {pattern: len(strfmt.DateTimePattern), check: known("date", "invalid date")},
		"datetime":               {pattern: len(strfmt.DateTimePattern), check: known("datetime", "invalid datetime")},
	}
	for name, f := range list {
		f.name, f.kind = name, formatType
	}
	return list
}

func checkURI(s string) []string {
	if _, err := url.ParseRequestURI(s); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// formatLibrary provides format.named, a function for each format, and validate.
type formatLibrary struct{}

// CompileOptions implements cel.Library.
func (formatLibrary) CompileOptions() []cel.EnvOption {
	all := formats()
	options := []cel.EnvOption{
		cel.Function("format.named", cel.Overload("format-named", []*cel.Type{cel.StringType}, cel.OptionalType(formatType),
			onText(func(name string) ref.Val {
				if f, ok := all[name]; ok {
					return types.OptionalOf(f)
				}
				return types.OptionalNone
			}))),
		cel.Function("validate", cel.MemberOverload("format-validate", []*cel.Type{formatType, cel.StringType},
			cel.OptionalType(cel.ListType(cel.StringType)), cel.BinaryBinding(validateFormat))),
	}
	for name, f := range all {
		options = append(options, cel.Function("format."+name, cel.Overload("format."+name, nil, formatType,
			cel.FunctionBinding(func(...ref.Val) ref.Val { return f }))))
	}
	return options
}

// ProgramOptions implements cel.Library.
func (formatLibrary) ProgramOptions() []cel.ProgramOption { return nil }

func validateFormat(v, text ref.Val) ref.Val {
	f, ok := v.(*format)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	s, ok := text.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(text)
	}
	problems := f.check(string(s))
	if len(problems) == 0 {
		return types.OptionalNone
	}
	return types.OptionalOf(types.NewStringList(types.DefaultTypeAdapter, problems))
}
