package negotiation_test

import (
	"net/http/httptest"
	"testing"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec/negotiation"
)

// media has the media types that are always supported.
var media negotiation.Media

// TestAcceptSelectsSupportedTypeAndRepresentation checks which of the supported media types and
// representations an Accept header selects.
func TestAcceptSelectsSupportedTypeAndRepresentation(t *testing.T) {
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	for _, test := range []struct {
		accept string
		want   negotiation.Choice
		ok     bool
	}{
		{want: negotiation.Choice{Media: api.MediaJSON}, ok: true},
		{accept: "*/*", want: negotiation.Choice{Media: api.MediaJSON}, ok: true},
		{accept: "application/yaml", want: negotiation.Choice{Media: api.MediaYAML}, ok: true},
		{accept: "application/json;q=0.3, application/yaml;q=0.9", want: negotiation.Choice{Media: api.MediaYAML}, ok: true},
		{
			accept: "text/html, application/yaml;q=0.5, application/json;q=0.9, */*;q=0.1",
			want:   negotiation.Choice{Media: api.MediaJSON},
			ok:     true,
		},
		{accept: "application/*", want: negotiation.Choice{Media: api.MediaJSON}, ok: true},
		{accept: "text/html", want: negotiation.Choice{}},
		{accept: table, want: negotiation.Choice{Media: api.MediaJSON, Representation: negotiation.Table, MetaVersion: "v1"}, ok: true},
		{accept: "application/json;as=Table;v=v9;g=meta.k8s.io", want: negotiation.Choice{}},
		{
			accept: "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
			want:   negotiation.Choice{Media: api.MediaJSON},
			ok:     true,
		},
		{accept: "application/json;as=Table;v=v1;g=other", want: negotiation.Choice{}},
		{accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", want: negotiation.Choice{}},
		{
			accept: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
			want:   negotiation.Choice{Media: api.MediaProtobuf, Representation: negotiation.PartialObject, MetaVersion: "v1"},
			ok:     true,
		},
		{accept: "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", want: negotiation.Choice{}},
		{
			accept: "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
			want:   negotiation.Choice{Media: api.MediaJSON},
			ok:     true,
		},
		{accept: "application/json;pretty=1", want: negotiation.Choice{Media: api.MediaJSON, Pretty: true}, ok: true},
	} {
		req := httptest.NewRequest("GET", "/", nil)
		req.Header.Set("Accept", test.accept)
		got, ok := media.Accept(req, negotiation.Table, negotiation.PartialObject)
		if ok != test.ok || got != test.want {
			t.Errorf("Accept %q: got %+v, %v, want %+v, %v", test.accept, got, ok, test.want, test.ok)
		}
	}
}

// TestBrowsersAndCurlGetIndentedJSON checks that interactive tools get indented JSON unless they ask
// otherwise.
func TestBrowsersAndCurlGetIndentedJSON(t *testing.T) {
	for userAgent, want := range map[string]bool{
		"curl/8.0":          true,
		"Wget/1":            true,
		"Mozilla/5.0 (X11)": true,
		"kubectl/v1.33":     false,
		"":                  false,
	} {
		req := httptest.NewRequest("GET", "/", nil)
		req.Header.Set("User-Agent", userAgent)
		if got, _ := media.Accept(req); got.Pretty != want {
			t.Errorf("User-Agent %q: got pretty %v, want %v", userAgent, got.Pretty, want)
		}
	}
	req := httptest.NewRequest("GET", "/?pretty=false", nil)
	req.Header.Set("User-Agent", "curl/8.0")
	if got, _ := media.Accept(req); got.Pretty {
		t.Error("curl with pretty=false: got pretty, want not")
	}
}

// TestContentTypeSelectsMediaTypeOfBody checks that a Content-Type selects a supported media type, and JSON by default.
func TestContentTypeSelectsMediaTypeOfBody(t *testing.T) {
	for header, want := range map[string]string{
		"": api.MediaJSON, "application/json; charset=utf-8": api.MediaJSON, "application/yaml": api.MediaYAML,
		"application/vnd.kubernetes.protobuf": api.MediaProtobuf, "text/plain": "", "application/x-www-form-urlencoded": "", ";": "",
	} {
		req := httptest.NewRequest("POST", "/", nil)
		req.Header.Set("Content-Type", header)
		got, ok := media.Body(req)
		if got != want || ok != (want != "") {
			t.Errorf("Content-Type %q: got %q, %v, want %q", header, got, ok, want)
		}
	}
}

// FuzzAccept checks that every accepted header has a media type, and that none panics.
func FuzzAccept(f *testing.F) {
	f.Add("application/json;as=Table;v=v1;g=meta.k8s.io, */*;q=0.1")
	f.Fuzz(func(t *testing.T, accept string) {
		req := httptest.NewRequest("GET", "/", nil)
		req.Header.Set("Accept", accept)
		if choice, ok := media.Accept(req); ok && choice.Media == "" {
			t.Errorf("%q: got a choice without a media type, want one with it", accept)
		}
		media.Supports(accept)
	})
}
