// Package negotiate chooses the representation of an answer from the Accept
// header, and of a body from its Content-Type (specification: "Media types").
package negotiate

import (
	"mime"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"

	"binnacle/libs/api"
)

// As is the form in which an object or list is shown.
type As uint8

// The forms.
const (
	Itself As = iota
	Table
	PartialObject
	PartialObjectList
)

// Choice is a chosen representation.
type Choice struct {
	// Media is the media type without parameters.
	Media string
	As    As
	// MetaVersion is the version of meta.k8s.io for the other forms: v1 or
	// v1beta1.
	MetaVersion string
	Pretty      bool
}

// Media is the set of media types that are read and written. Its zero value has
// those that are always there.
type Media struct {
	// CBOR adds application/cbor and application/cbor-seq.
	CBOR bool
}

// Objects are the media types of objects, in the order in which messages name
// them.
func (m Media) Objects() []string {
	types := []string{api.MediaJSON, api.MediaYAML, api.MediaProtobuf}
	if m.CBOR {
		types = append(types, api.MediaCBOR)
	}
	return types
}

// Documents are the media types of objects that have no protobuf form.
func (m Media) Documents() []string {
	return slices.DeleteFunc(m.Objects(), func(t string) bool { return t == api.MediaProtobuf })
}

// DocumentStreams are those of watches of such objects.
func (m Media) DocumentStreams() []string {
	return slices.DeleteFunc(m.Streams(), func(t string) bool { return strings.HasPrefix(t, api.MediaProtobuf) })
}

// Streams are the media types of watches.
func (m Media) Streams() []string {
	types := []string{api.MediaJSON + ";stream=watch", api.MediaProtobuf + ";stream=watch"}
	if m.CBOR {
		types = append(types, api.MediaCBORSequence)
	}
	return types
}

// ObjectsAndStreams are those of paths that can be watched too.
func (m Media) ObjectsAndStreams() []string { return append(m.Objects(), m.Streams()...) }

// has tells whether objects have a media type.
func (m Media) has(t string) bool {
	switch t {
	case api.MediaJSON, api.MediaYAML, api.MediaProtobuf:
		return true
	case api.MediaCBOR:
		return m.CBOR
	}
	return false
}

type clause struct {
	typ    string
	params map[string]string
	q      float64
}

func parse(header string) []clause {
	var out []clause
	for _, part := range strings.Split(header, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		fields := strings.Split(part, ";")
		c := clause{typ: strings.ToLower(strings.TrimSpace(fields[0])), q: 1}
		for _, p := range fields[1:] {
			k, v, _ := strings.Cut(strings.TrimSpace(p), "=")
			k, v = strings.TrimSpace(k), strings.Trim(strings.TrimSpace(v), `"`)
			if k == "q" {
				if q, err := strconv.ParseFloat(v, 64); err == nil {
					c.q = q
				}
				continue
			}
			if c.params == nil {
				c.params = map[string]string{}
			}
			c.params[k] = v
		}
		out = append(out, c)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].q > out[j].q })
	return out
}

// Known tells whether the header names any media type that the path serves,
// parameters aside. The answer to a request for which it is false is 406 before
// anything else is looked at.
func (m Media) Known(header string) bool {
	if strings.TrimSpace(header) == "" {
		return true
	}
	for _, part := range strings.Split(header, ",") {
		t, _, _ := strings.Cut(part, ";")
		t = strings.TrimSpace(t)
		if t == "*/*" {
			return true
		}
		if m.has(t) || m.CBOR && t == api.MediaCBORSequence {
			return true
		}
	}
	return false
}

// Accept chooses the representation of an answer; false means that none is
// acceptable. forms tells which other forms the path has.
func (m Media) Accept(r *http.Request, forms ...As) (Choice, bool) {
	return AcceptOf(r, m.Objects(), forms...)
}

// AcceptStream chooses the representation of the objects of a watch.
func (m Media) AcceptStream(r *http.Request, forms ...As) (Choice, bool) {
	types := []string{api.MediaJSON, api.MediaProtobuf}
	if m.CBOR {
		types = append(types, api.MediaCBOR, api.MediaCBORSequence)
	}
	c, ok := AcceptOf(r, types, forms...)
	if c.Media == api.MediaCBORSequence {
		c.Media = api.MediaCBOR
	}
	return c, ok
}

// AcceptOf chooses among some media types only.
func AcceptOf(r *http.Request, types []string, forms ...As) (Choice, bool) {
	header := r.Header.Get("Accept")
	if strings.TrimSpace(header) == "" {
		return Choice{Media: types[0], Pretty: pretty(r, nil)}, true
	}
	for _, c := range parse(header) {
		for _, t := range types {
			if c.typ != t && c.typ != "*/*" {
				continue
			}
			choice := Choice{Media: t, Pretty: pretty(r, c.params)}
			if !choice.form(c.params, forms) {
				continue
			}
			return choice, true
		}
	}
	return Choice{}, false
}

// form reads the parameters as, g and v. Each of them alone asks for another form.
func (c *Choice) form(params map[string]string, forms []As) bool {
	name, as := params["as"]
	_, group := params["g"]
	_, version := params["v"]
	if !as && !group && !version {
		return true
	}
	if params["g"] != "meta."+api.Domain {
		return false
	}
	switch params["v"] {
	case "v1", "v1beta1":
		c.MetaVersion = params["v"]
	default:
		return false
	}
	want := map[string]As{"Table": Table, "PartialObjectMetadata": PartialObject, "PartialObjectMetadataList": PartialObjectList}[name]
	for _, f := range forms {
		if f == want && want != Itself {
			c.As = want
			return true
		}
	}
	return false
}

// pretty tells whether JSON is to be indented: when asked for, and by default
// for the tools that people use by hand.
func pretty(r *http.Request, params map[string]string) bool {
	asked := params["pretty"]
	if v, ok := api.Parameter(r.URL.RawQuery, "pretty"); ok {
		asked = v
		if asked == "" {
			return true
		}
	}
	if asked != "" {
		on, err := strconv.ParseBool(asked)
		return err != nil || on
	}
	ua := r.UserAgent()
	for _, tool := range []string{"curl", "Wget", "Mozilla/5.0"} {
		if strings.HasPrefix(ua, tool) {
			return true
		}
	}
	return false
}

// Body returns the media type of a request's body, JSON when it has none;
// false when it is not one of those that are read.
func (m Media) Body(r *http.Request) (string, bool) {
	h := r.Header.Get("Content-Type")
	if h == "" {
		return api.MediaJSON, true
	}
	t, _, err := mime.ParseMediaType(h)
	if err != nil {
		return "", false
	}
	if !m.has(t) {
		return "", false
	}
	return t, true
}
