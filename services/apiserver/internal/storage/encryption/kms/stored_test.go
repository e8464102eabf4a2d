package kms_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"

	"binnacle/services/apiserver/internal/storage/encryption/kms"
	"binnacle/services/apiserver/internal/storage/encryption/kms/kmstest"
)

// TestMain fails if a test leaves goroutines behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const storedKey = "/registry/secrets/default/s"

// newConfig returns the configuration of a plugin that is probed only on demand.
func newConfig(t testing.TB, plugin *kmstest.Plugin) kms.Config {
	t.Helper()
	m, err := kms.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return kms.Config{
		Name:      "rec",
		Endpoint:  plugin.Endpoint(),
		Timeout:   5 * time.Second,
		ServerID:  "test",
		Logger:    slog.New(slog.DiscardHandler),
		Metrics:   m,
		Recovered: func() {},
		Intervals: kms.Intervals{
			HealthyInterval:   time.Hour,
			UnhealthyInterval: time.Hour,
			HealthyTTL:        time.Nanosecond,
			UnhealthyTTL:      time.Nanosecond,
		},
	}
}

func newV2Provider(t testing.TB, config kms.Config) kms.Provider {
	t.Helper()
	p, err := kms.NewV2(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// field is a field of a stored value.
type field struct {
	number  protowire.Number
	encoded []byte // including its tag
}

func stringField(num protowire.Number, v string) field {
	return field{num, protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), v)}
}

func varintField(num protowire.Number, v uint64) field {
	return field{num, protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)}
}

func annotationField(name, value string) field {
	return stringField(4, string(joinFields(stringField(1, name), stringField(2, value))))
}

func joinFields(fields ...field) (out []byte) {
	for _, f := range fields {
		out = append(out, f.encoded...)
	}
	return out
}

// fieldsOf splits a stored value into fields.
func fieldsOf(t testing.TB, b []byte) (out []field) {
	t.Helper()
	for len(b) > 0 {
		num, _, n := protowire.ConsumeField(b)
		if n < 0 {
			t.Fatal("got an invalid message, want a valid one")
		}
		out = append(out, field{num, b[:n]})
		b = b[n:]
	}
	return out
}

// TestV2StoredFormIsDecryptedOrRejected checks which stored values are decrypted, and the errors for
// the other ones.
func TestV2StoredFormIsDecryptedOrRejected(t *testing.T) {
	plugin := kmstest.New(t)
	provider := newV2Provider(t, newConfig(t, plugin))
	sealed, err := provider.Seal(t.Context(), nil, []byte("value"), storedKey)
	if err != nil {
		t.Fatal(err)
	}
	good := fieldsOf(t, sealed)
	without := func(num protowire.Number, more ...field) []byte {
		return joinFields(append(slices.DeleteFunc(slices.Clone(good), func(f field) bool { return f.number == num }), more...)...)
	}
	with := func(more ...field) []byte { return joinFields(append(slices.Clone(good), more...)...) }
	cut := func(f field) field { return field{f.number, f.encoded[:len(f.encoded)-1]} }
	name := func(i int) string { return string(rune('a'+i)) + ".example" }
	var large []field
	for i := range 8 {
		large = append(large, annotationField(name(i), strings.Repeat("x", 4<<10)))
	}
	const eof = "unexpected EOF"
	for _, test := range []struct {
		name   string
		sealed []byte
		want   string
	}{
		{name: "unchanged", sealed: sealed},
		{name: "in another order", sealed: joinFields(slices.Concat(good[1:], good[:1])...)},
		{name: "more fields", sealed: with(varintField(6, 9), stringField(7, "x"), stringField(5, "\x00"))},
		{name: "a field of another type", sealed: with(varintField(1, 3), varintField(2, 3), varintField(3, 3), varintField(4, 3))},
		{
			name:   "a repeated annotation: the last one counts",
			sealed: without(4, annotationField("local.example", "other"), annotationField("local.example", "note")),
		},
		{
			name: "an annotation with unknown fields",
			sealed: without(4,
				stringField(4,
					string(joinFields(varintField(1, 3), varintField(2, 3),
						stringField(1, "local.example"), stringField(2, "note"), stringField(3, "x"))))),
		},
		{name: "an additional annotation, which means another key", sealed: with(annotationField("another.example", "x"))},
		{
			name:   "the same in another order",
			sealed: without(4, annotationField("another.example", "x"), annotationField("local.example", "note")),
		},
		{name: "empty", want: "encrypted data is empty"},
		{name: "no data", sealed: without(1), want: "encrypted data is empty"},
		{name: "an invalid tag", sealed: with(field{0, []byte{0x80}}), want: eof},
		{name: "a truncated string", sealed: with(cut(stringField(3, "xy"))), want: eof},
		{name: "a truncated number", sealed: with(field{0, []byte{5 << 3, 0x80}}), want: eof},
		{name: "a truncated unknown field", sealed: with(cut(stringField(9, "xy"))), want: eof},
		{name: "an annotation with an invalid tag", sealed: with(stringField(4, "\x80")), want: eof},
		{name: "a truncated annotation", sealed: with(stringField(4, string(joinFields(cut(stringField(1, "xy")))))), want: eof},
		{name: "an unknown source", sealed: without(5, varintField(5, 2)), want: "unknown encryptedDEKSourceType: 2"},
		{name: "no source", sealed: without(3), want: "encrypted DEK source is empty"},
		{
			name:   "a large source",
			sealed: without(3, stringField(3, strings.Repeat("x", 1025))),
			want:   "encrypted DEK source is 1025 bytes, which exceeds the max size of 1024",
		},
		{
			name:   "a source of the maximum size",
			sealed: without(3, stringField(3, strings.Repeat("x", 1024))),
			want:   "cipher: message authentication failed",
		},
		{name: "no key", sealed: without(2), want: "keyID is empty"},
		{
			name:   "a long key",
			sealed: without(2, stringField(2, strings.Repeat("x", 1025))),
			want:   "keyID is 1025 bytes, which exceeds the max size of 1024",
		},
		{
			name:   "an annotation without a domain",
			sealed: with(annotationField("note", "x")),
			want:   "failed to validate annotations: annotations: Invalid value: \"note\"",
		},
		{name: "large annotations", sealed: with(large...), want: "total size of annotations is 32"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, stale, err := provider.Open(t.Context(), test.sealed, storedKey)
			switch {
			case test.want == "" && (err != nil || string(got) != "value" || stale):
				t.Errorf("got %q, stale %t, %v, want the current value", got, stale, err)
			case test.want != "" && (err == nil || got != nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %q, %v, want %s", got, err, test.want)
			}
		})
	}
	if n := plugin.Calls("Decrypt"); n != 2 { // for the other annotation and the other source
		t.Errorf("got %d Decrypt calls, want 2", n)
	}
}
