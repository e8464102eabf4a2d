package config

import (
	"strings"
	"testing"

	"binnacle/libs/options"
)

func TestMemoryFlags(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ flags, caches, history, wrong string }{
		{"", "0", "0", ""},
		{"--cache-memory=256Mi", "256Mi", "0", ""},
		{"--cache-memory=1Gi --watch-history-memory=100Mi", "1Gi", "100Mi", ""},
		{"--watch-history-memory=191Mi", "0", "191Mi", ""},
		{"--watch-history-memory=193Mi", "0", "193Mi", "--watch-history-memory 193Mi exceeds --cache-memory, which is 192Mi"},
		{"--cache-memory=-1", "", "", `"-1" is not a number of bytes`},
		{"--cache-memory=much", "", "", "quantities must match"},
	} {
		var o MemoryOptions
		s := &options.Sections{}
		o.addFlags(s)
		err := s.Set("memory").Parse(strings.Fields(tc.flags))
		for _, e := range o.validate() {
			err = e
		}
		if tc.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), tc.wrong) {
				t.Errorf("%s: %v, want %s", tc.flags, err, tc.wrong)
			}
			continue
		}
		if err != nil || o.Caches.String() != tc.caches || o.History.String() != tc.history {
			t.Errorf("%s: %s and %s, %v", tc.flags, &o.Caches, &o.History, err)
		}
	}
}
