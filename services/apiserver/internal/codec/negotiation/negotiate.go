// Package negotiation chooses the representation of a response from the Accept header, and reads
// the media type of a body from its Content-Type (specification: "Media types"). It has no state.
package negotiation

import (
	"mime"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"

	"binnacle/libs/api"
)

// Representation is what a response contains of an object or list, such as a Table of it.
type Representation uint8

// Representations.
const (
	Itself Representation = iota
	Table
	PartialObject
	PartialObjectList
)

// Choice is a negotiated representation.
type Choice struct {
	// Media is the media type without parameters.
	Media          string
	Representation Representation
	// MetaVersion is the version of meta.k8s.io for representations other than Itself: v1 or v1beta1.
	MetaVersion string
	Pretty      bool
}

// Media is the set of supported media types. Its zero value has those that are always supported.
type Media struct {
	// CBOR adds application/cbor and application/cbor-seq.
	CBOR bool
}

// Objects returns the media types of objects, in the order of error messages.
func (m Media) Objects() []string {
	types := []string{api.MediaJSON, api.MediaYAML, api.MediaProtobuf}
	if m.CBOR {
		types = append(types, api.MediaCBOR)
	}
	return types
}

// Documents returns the media types of objects without a protobuf encoding.
func (m Media) Documents() []string {
	return slices.DeleteFunc(m.Objects(), func(t string) bool { return t == api.MediaProtobuf })
}

// DocumentStreams returns the media types of watches of objects without a protobuf encoding.
func (m Media) DocumentStreams() []string {
	return slices.DeleteFunc(m.Streams(), func(t string) bool { return strings.HasPrefix(t, api.MediaProtobuf) })
}

// Streams returns the media types of watches.
func (m Media) Streams() []string {
	types := []string{api.MediaJSON + ";stream=watch", api.MediaProtobuf + ";stream=watch"}
	if m.CBOR {
		types = append(types, api.MediaCBORSequence)
	}
	return types
}

// ObjectsAndStreams returns the media types of paths that can also be watched.
func (m Media) ObjectsAndStreams() []string { return append(m.Objects(), m.Streams()...) }

// supports reports whether t is a media type of objects.
func (m Media) supports(t string) bool {
	switch t {
	case api.MediaJSON, api.MediaYAML, api.MediaProtobuf:
		return true
	case api.MediaCBOR:
		return m.CBOR
	}
	return false
}

// mediaRange is one media range of an Accept header.
type mediaRange struct {
	typ     string // such as application/json, */*
	params  map[string]string
	quality float64 // preference from 0 to 1
}

// parseAccept parses an Accept header. It returns the ranges in the order of preference.
func parseAccept(header string) []mediaRange {
	var out []mediaRange
	for _, part := range strings.Split(header, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		fields := strings.Split(part, ";")
		candidate := mediaRange{typ: strings.ToLower(strings.TrimSpace(fields[0])), quality: 1}
		for _, p := range fields[1:] {
			name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
			name = strings.TrimSpace(name)
			value = strings.Trim(strings.TrimSpace(value), `"`)
			if name == "q" {
				if q, err := strconv.ParseFloat(value, 64); err == nil {
					candidate.quality = q
				}
				continue
			}
			if candidate.params == nil {
				candidate.params = map[string]string{}
			}
			candidate.params[name] = value
		}
		out = append(out, candidate)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].quality > out[j].quality })
	return out
}

// Supports reports whether the header names any supported media type, regardless of parameters. If
// not, the response is 406 before the request is examined further.
func (m Media) Supports(header string) bool {
	return AcceptsAny(header, func(t string) bool { return m.supports(t) || m.CBOR && t == api.MediaCBORSequence })
}

// AcceptsAny reports whether an Accept header is empty or names */* or a known media type.
func AcceptsAny(header string, known func(mediaType string) bool) bool {
	if strings.TrimSpace(header) == "" {
		return true
	}
	for _, part := range strings.Split(header, ",") {
		t, _, _ := strings.Cut(part, ";")
		if t = strings.TrimSpace(t); t == "*/*" || known(t) {
			return true
		}
	}
	return false
}

// Accept chooses the media type and representation of a response. It returns false if none is
// acceptable. offered has the representations other than Itself that the path supports.
func (m Media) Accept(r *http.Request, offered ...Representation) (Choice, bool) {
	return AcceptOf(r, m.Objects(), offered...)
}

// AcceptStream chooses the media type and representation of the objects in a watch. It chooses YAML
// as Accept does, although a watch cannot be served as YAML; the caller rejects such a Choice.
func (m Media) AcceptStream(r *http.Request, offered ...Representation) (Choice, bool) {
	types := m.Objects()
	if m.CBOR {
		types = append(types, api.MediaCBORSequence)
	}
	c, ok := AcceptOf(r, types, offered...)
	if c.Media == api.MediaCBORSequence {
		c.Media = api.MediaCBOR
	}
	return c, ok
}

// AcceptOf chooses like Accept, among the given media types.
func AcceptOf(r *http.Request, types []string, offered ...Representation) (Choice, bool) {
	header := r.Header.Get("Accept")
	if strings.TrimSpace(header) == "" {
		return Choice{Media: types[0], Pretty: wantsPretty(r, nil)}, true
	}
	for _, mediaRange := range parseAccept(header) {
		for _, t := range types {
			if mediaRange.typ != t && mediaRange.typ != "*/*" && mediaRange.typ != "application/*" { // all media types are applications
				continue
			}
			choice := Choice{Media: t, Pretty: wantsPretty(r, mediaRange.params)}
			if choice.setRepresentation(mediaRange.params, offered) {
				return choice, true
			}
		}
	}
	return Choice{}, false
}

// setRepresentation applies the parameters as, g and v, such as as=Table;g=meta.k8s.io;v=v1. Any one
// of them requests another representation than Itself. setRepresentation returns false if the
// requested representation is not offered.
func (c *Choice) setRepresentation(params map[string]string, offered []Representation) bool {
	name, hasKind := params["as"]
	_, hasGroup := params["g"]
	_, hasVersion := params["v"]
	if !hasKind && !hasGroup && !hasVersion {
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
	representation, known := representationsByKind[name]
	if !known || !slices.Contains(offered, representation) {
		return false
	}
	if representation == Table && c.Media == api.MediaProtobuf { // tables have no protobuf encoding
		return false
	}
	c.Representation = representation
	return true
}

// representationsByKind holds the representations by the kind in the parameter as.
var representationsByKind = map[string]Representation{
	"Table":                     Table,
	"PartialObjectMetadata":     PartialObject,
	"PartialObjectMetadataList": PartialObjectList,
}

// wantsPretty reports whether JSON is indented: on request, and by default for interactive tools.
func wantsPretty(r *http.Request, params map[string]string) bool {
	requested := params["pretty"]
	if v, ok := api.Parameter(r.URL.RawQuery, "pretty"); ok {
		requested = v
		if requested == "" {
			return true
		}
	}
	if requested != "" {
		on, err := strconv.ParseBool(requested)
		return err != nil || on
	}
	return isInteractive(r.UserAgent())
}

// isInteractive reports whether a user agent is a tool that shows responses to a person.
func isInteractive(userAgent string) bool {
	for _, tool := range []string{"curl", "Wget", "Mozilla/5.0"} {
		if strings.HasPrefix(userAgent, tool) {
			return true
		}
	}
	return false
}

// Body returns the media type of a request's body, which is JSON without a Content-Type. It returns
// false if the media type is not supported.
func (m Media) Body(r *http.Request) (string, bool) {
	h := r.Header.Get("Content-Type")
	if h == "" {
		return api.MediaJSON, true
	}
	mediaType, _, err := mime.ParseMediaType(h)
	if err != nil {
		return "", false
	}
	if !m.supports(mediaType) {
		return "", false
	}
	return mediaType, true
}
