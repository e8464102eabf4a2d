package encryption_test

import (
	"strings"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/storage/encryption"
)

// TestInvalidDocumentsAreRejected checks errors in documents that are found before their rules are validated.
func TestInvalidDocumentsAreRejected(t *testing.T) {
	const kind = "kind: EncryptionConfiguration\n"
	good := rulesYAML(ruleYAML("secrets", identityTransformer))
	for _, test := range []struct{ name, content, want string }{
		{name: "valid", content: good},
		{name: "invalid YAML", content: "a: b: c", want: "mapping values are not allowed"},
		{name: "a list", content: "[1]", want: "cannot unmarshal array"},
		{name: "no kind", content: "apiVersion: apiserver.config.k8s.io/v1\n", want: "Object 'Kind' is missing"},
		{name: "no version", content: kind, want: "Object 'apiVersion' is missing"},
		{name: "an invalid version", content: "apiVersion: a/b/c\n" + kind, want: "unexpected GroupVersion string: a/b/c"},
		{
			name:    "another version",
			content: strings.Replace(good, "io/v1", "io/v2", 1),
			want:    `no kind "EncryptionConfiguration" is registered for version "apiserver.config.k8s.io/v2"`,
		},
		{
			name:    "another group",
			content: strings.Replace(good, "apiserver.config", "other.config", 1),
			want:    `is registered for version "other.config.k8s.io/v1"`,
		},
		{
			name:    "another kind",
			content: strings.Replace(good, "kind: Enc", "kind: Dec", 1),
			want:    `no kind "DecryptionConfiguration" is registered`,
		},
		{
			name:    "another kind, given twice",
			content: "apiVersion: v1\nkind: Pod\nkind: Pod\n",
			want:    `no kind "Pod" is registered for version "v1"`,
		},
		{name: "rules that are a number", content: rulesYAML() + "  5\n", want: "cannot unmarshal number"},
		{
			name:    "two unknown fields",
			content: good + "one: 1\ntwo: 2\n",
			want:    `strict decoding error: unknown field "one", unknown field "two"`,
		},
		{name: "a field given twice", content: good + kind, want: "strict decoding error: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := encryption.Parse("f", []byte(test.content), false)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestDefaultsApplyToMissingFieldsOnly checks that defaults of plugins apply only to missing fields.
func TestDefaultsApplyToMissingFieldsOnly(t *testing.T) {
	configuration, err := encryption.Parse("f",
		[]byte(rulesYAML(ruleYAML("secrets", "kms: {name: a, endpoint: 'unix:///x'}",
			"kms: {name: b, endpoint: 'unix:///x', cachesize: 7, timeout: 9s}",
			"kms: {apiVersion: v2, name: c, endpoint: 'unix:///x'}"))), false)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		version string
		size    int32 // 0 if unset
		timeout time.Duration
	}{
		{version: "v1", size: 1000, timeout: 3 * time.Second},
		{version: "v1", size: 7, timeout: 9 * time.Second},
		{version: "v2", size: 0, timeout: 3 * time.Second},
	} {
		k := configuration.Resources[0].Providers[i].KMS
		size := int32(0)
		if k.CacheSize != nil {
			size = *k.CacheSize
		}
		if k.APIVersion != want.version || size != want.size || k.Timeout.Duration != want.timeout {
			t.Errorf("%s: got version %s, cache size %d, timeout %s, want %s, %d, %s",
				k.Name, k.APIVersion, size, k.Timeout.Duration, want.version, want.size, want.timeout)
		}
	}
}
