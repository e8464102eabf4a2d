package handlers

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
)

// TestFieldManagerDefaultsToUserAgent checks that the manager is the requested one, or else the
// printable beginning of the user agent.
func TestFieldManagerDefaultsToUserAgent(t *testing.T) {
	for _, test := range []struct{ requested, agent, want string }{
		{requested: "me", agent: "kubectl/v1", want: "me"},
		{agent: "kubectl/v1.33.0 (linux/amd64)", want: "kubectl"},
		{agent: "no slash", want: "no slash"},
		{requested: ""},
		{agent: "a\x01b\u200bc/1", want: "abc"},
		{agent: strings.Repeat("x", 200) + "/1", want: strings.Repeat("x", 128)},
		{agent: strings.Repeat("ä", 100), want: strings.Repeat("ä", 64)},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header["User-Agent"] = []string{test.agent}
		if got := fieldManager(r, test.requested); got != test.want {
			t.Errorf("requested %q, user agent %q: got %q, want %q", test.requested, test.agent, got, test.want)
		}
	}
}

// TestInvalidRevisionsAreRejected checks the error texts of invalid resource versions, and that
// they repeat only the beginning of a long one.
func TestInvalidRevisionsAreRejected(t *testing.T) {
	for s, want := range map[string]string{
		"x":                         `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`,
		"9223372036854775808":       `resourceVersion: Invalid value: "9223372036854775808": strconv.ParseUint: parsing "9223372036854775808": value out of range`,
		strings.Repeat("9", 500000): `resourceVersion: Invalid value: "` + strings.Repeat("9", maxRevisionInError) + `": strconv.ParseUint: parsing "` + strings.Repeat("9", maxRevisionInError) + `": value out of range`,
	} {
		if _, err := parseRevision(s); err == nil || err.Error() != want {
			t.Errorf("%.20s: got %.200v, want %.200s", s, err, want)
		}
	}
}

// parsedOptions returns the error of the parameters of a list.
func parsedOptions(query url.Values, c *codec.KindCodec) error {
	o, err := parseListOptions(&requestinfo.Info{Query: query}, false, false)
	if err != nil {
		return err
	}
	return o.resolveAll(c, false)
}

// TestSelectorsAreBounded checks that label and field selectors may have 1000 requirements
// together.
func TestSelectorsAreBounded(t *testing.T) {
	many := func(one string, n int) string { return strings.Repeat(","+one, n)[1:] }
	coder := &codec.KindCodec{Kind: &registry.Kind{}}
	for _, test := range []struct {
		label, field string
		ok           bool
	}{
		{label: many("a", 1000), ok: true},
		{label: many("a", 1001)},
		{label: "a in (" + many("b", 5000) + ")", ok: true},
		{field: many("metadata.name!=a", 1001)},
		{field: many(`metadata.name!=a\,b`, 1000), ok: true},
		{label: many("a in (b,c),!d", 500), ok: true},
		{label: "a in (b,c)," + many("a", 1000)},
		{label: many("a", 600), field: many("metadata.name!=a", 600)},
	} {
		err := parsedOptions(url.Values{"labelSelector": {test.label}, "fieldSelector": {test.field}}, coder)
		if (err == nil) != test.ok || err != nil && !apierrors.IsBadRequest(err) {
			t.Errorf("%.20s… %.20s…: got error %v, want success: %t", test.label, test.field, err, test.ok)
		}
	}
}

// TestSelectorsMayNameOnlyKnownFields checks which fields selectors may name, and the errors for all
// other fields.
func TestSelectorsMayNameOnlyKnownFields(t *testing.T) {
	own := registry.Presentation{Selectable: []registry.SelectableField{{Label: "spec.x"}}}
	const builtIn, ownFields = `"spec.y" is not a known field selector: only "metadata.name", "metadata.namespace"`, "field label not supported: spec.y"
	for name, test := range map[string]struct {
		kind registry.Kind
		// mayNameNamespace means that selectors may name the namespace.
		mayNameNamespace bool
		want             string
	}{
		"namespaced": {
			kind:             registry.Kind{Names: registry.Names{Namespaced: true}},
			mayNameNamespace: true,
			want:             builtIn,
		},
		"of the cluster":              {kind: registry.Kind{}, mayNameNamespace: true, want: builtIn},
		"of the cluster, with fields": {kind: registry.Kind{Presentation: own}, want: ownFields},
		"custom, namespaced": {
			kind:             registry.Kind{Names: registry.Names{Namespaced: true}, Document: &registry.Document{}},
			mayNameNamespace: true,
			want:             ownFields,
		},
		"custom, of the cluster": {kind: registry.Kind{Document: &registry.Document{}}, want: ownFields},
		"custom, of the cluster, with fields": {
			kind: registry.Kind{Document: &registry.Document{}, Presentation: own},
			want: ownFields,
		},
	} {
		t.Run(name, func(t *testing.T) {
			read := func(selector string) error {
				return parsedOptions(url.Values{"fieldSelector": {selector}}, &codec.KindCodec{Kind: &test.kind})
			}
			if err := read("metadata.namespace=,metadata.name!=x"); (err == nil) != test.mayNameNamespace {
				t.Errorf("metadata.namespace: got error %v, want success: %t", err, test.mayNameNamespace)
			}
			if err := read("spec.y=x"); !apierrors.IsBadRequest(err) || err.Error() != test.want {
				t.Errorf("spec.y: got %v, want %s", err, test.want)
			}
		})
	}
}
