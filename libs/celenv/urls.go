package celenv

import (
	"net/url"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

var urlType = cel.ObjectType("kubernetes.URL")

// webAddress is a URL.
type webAddress struct {
	opaque
	url *url.URL
}

// ConvertToType implements ref.Val.
func (w *webAddress) ConvertToType(to ref.Type) ref.Val { return w.convert(w, to) }

// Value implements ref.Val.
func (w *webAddress) Value() any { return w.url }

// Equal implements ref.Val.
func (w *webAddress) Equal(other ref.Val) ref.Val {
	o, ok := other.(*webAddress)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	return types.Bool(w.url.String() == o.url.String())
}

// urlLibrary provides url, isURL and the functions for the parts of a URL.
type urlLibrary struct{}

// CompileOptions implements cel.Library.
func (urlLibrary) CompileOptions() []cel.EnvOption {
	part := func(name, overload string, get func(*url.URL) string) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload(overload, []*cel.Type{urlType}, cel.StringType,
			onURL(func(u *url.URL) ref.Val { return types.String(get(u)) })))
	}
	return []cel.EnvOption{
		cel.Function("url", cel.Overload("string_to_url", []*cel.Type{cel.StringType}, urlType, cel.UnaryBinding(toURL))),
		cel.Function("isURL", cel.Overload("is_url_string", []*cel.Type{cel.StringType}, cel.BoolType, cel.UnaryBinding(isURL))),
		part("getScheme", "url_get_scheme", func(u *url.URL) string { return u.Scheme }),
		part("getHost", "url_get_host", func(u *url.URL) string { return u.Host }),
		part("getHostname", "url_get_hostname", (*url.URL).Hostname),
		part("getPort", "url_get_port", (*url.URL).Port),
		part("getEscapedPath", "url_get_escaped_path", (*url.URL).EscapedPath),
		cel.Function("getQuery", cel.MemberOverload("url_get_query", []*cel.Type{urlType},
			cel.MapType(cel.StringType, cel.ListType(cel.StringType)), onURL(queryOf))),
	}
}

// ProgramOptions implements cel.Library.
func (urlLibrary) ProgramOptions() []cel.ProgramOption { return nil }

func onURL(do func(*url.URL) ref.Val) cel.OverloadOpt {
	return cel.UnaryBinding(func(v ref.Val) ref.Val {
		w, ok := v.(*webAddress)
		if !ok {
			return types.MaybeNoSuchOverloadErr(v)
		}
		return do(w.url)
	})
}

// toURL parses an absolute URL or path. url.ParseRequestURI checks whether the text is one, but
// treats a fragment as part of the path.
func toURL(v ref.Val) ref.Val {
	s, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	_, err := url.ParseRequestURI(string(s))
	var u *url.URL
	if err == nil {
		u, err = url.Parse(string(s))
	}
	if err != nil {
		return types.NewErr("URL parse error during conversion from string: %v", err)
	}
	return &webAddress{opaque: opaque{kind: urlType, text: u.String}, url: u}
}

func isURL(v ref.Val) ref.Val {
	s, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	_, err := url.ParseRequestURI(string(s))
	return types.Bool(err == nil)
}

func queryOf(u *url.URL) ref.Val {
	query := map[ref.Val]ref.Val{}
	for k, v := range u.Query() {
		query[types.String(k)] = types.NewStringList(types.DefaultTypeAdapter, v)
	}
	return types.NewRefValMap(types.DefaultTypeAdapter, query)
}
