package config

import (
	"errors"
	"strings"
	"testing"

	"binnacle/libs/options"
)

// TestMemoryFlagsAreParsedAndValidated checks the values and the defaults of the memory flags, and
// their errors. The default of --cache-memory, 0, stands for 192Mi if GOMEMLIMIT is not set.
func TestMemoryFlagsAreParsedAndValidated(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ flags, wantCaches, wantHistory, wantErr string }{
		{wantCaches: "0", wantHistory: "0"},
		{flags: "--cache-memory=256Mi", wantCaches: "256Mi", wantHistory: "0"},
		{flags: "--cache-memory=1Gi --watch-history-memory=100Mi", wantCaches: "1Gi", wantHistory: "100Mi"},
		{flags: "--watch-history-memory=191Mi", wantCaches: "0", wantHistory: "191Mi"},
		{
			flags:       "--watch-history-memory=193Mi",
			wantCaches:  "0",
			wantHistory: "193Mi",
			wantErr:     "--watch-history-memory 193Mi exceeds --cache-memory, which is 192Mi",
		},
		{flags: "--cache-memory=-1", wantErr: `"-1" is not a number of bytes`},
		{flags: "--cache-memory=much", wantErr: "quantities must match"},
	} {
		var memoryOptions MemoryOptions
		sections := &options.Sections{}
		memoryOptions.addFlags(sections)
		err := sections.Set("memory").Parse(strings.Fields(tc.flags))
		err = errors.Join(err, errors.Join(memoryOptions.validate()...))
		if tc.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("%s: got %v, want %s", tc.flags, err, tc.wantErr)
			}
			continue
		}
		if err != nil || memoryOptions.Caches.String() != tc.wantCaches || memoryOptions.History.String() != tc.wantHistory {
			t.Errorf("%s: got caches %s, history %s, error %v, want %s, %s", tc.flags, &memoryOptions.Caches, &memoryOptions.History, err, tc.wantCaches, tc.wantHistory)
		}
	}
}
