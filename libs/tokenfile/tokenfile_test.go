package tokenfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"binnacle/libs/authenticator"
	"binnacle/libs/tokenfile"
)

// TestParseReturnsUsersErrorsAndWarnings checks the users of a token file, and its errors and
// warnings.
func TestParseReturnsUsersErrorsAndWarnings(t *testing.T) {
	for name, test := range map[string]struct {
		text     string
		token    string
		want     *authenticator.User
		warnings int
		err      string
	}{
		"three columns": {text: "tok,alice,u1\n", token: "tok", want: &authenticator.User{Name: "alice", UID: "u1"}},
		"groups": {
			text:  "tok,alice,u1,\"dev,ops\"",
			token: "tok",
			want:  &authenticator.User{Name: "alice", UID: "u1", Groups: []string{"dev", "ops"}},
		},
		"spaces in groups": {
			text:  "tok,alice,u1,\"dev, ops\"",
			token: "tok",
			want:  &authenticator.User{Name: "alice", UID: "u1", Groups: []string{"dev", " ops"}},
		},
		"one group unquoted": {
			text:  "tok,alice,u1,dev",
			token: "tok",
			want:  &authenticator.User{Name: "alice", UID: "u1", Groups: []string{"dev"}},
		},
		"an empty list of groups": {text: "tok,alice,u1,", token: "tok", want: &authenticator.User{Name: "alice", UID: "u1"}},
		"prefix of a token":       {text: "tok,alice,u1", token: "to"},
		"an empty file":           {text: "", token: ""},
		"empty token":             {text: ",alice,u1\ntok,bob,u2\n", token: "", warnings: 1},
		"token given twice, last line wins": {
			text:     "tok,alice,u1\ntok,bob,u2\n",
			token:    "tok",
			want:     &authenticator.User{Name: "bob", UID: "u2"},
			warnings: 1,
		},
		"empty lines":          {text: "\n\ntok,alice,u1\n\n", token: "tok", want: &authenticator.User{Name: "alice", UID: "u1"}},
		"two columns":          {text: "tok,alice,u1\nsecret,bob\n", err: "line 2: must have at least 3 columns"},
		"one column":           {text: "secret\n", err: "line 1: must have at least 3 columns"},
		"quote within a field": {text: "tok,alice,u1\nsecret,\"bo\"b,u2\n", err: "line 2:"},
		"unclosed quote":       {text: "secret,\"bob,u2\n", err: "line 1"},
		"token over the limit": {
			text: strings.Repeat("x", authenticator.MaxTokenBytes+1) + ",bob,u2",
			err:  "line 1: token is too long",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, warnings, err := tokenfile.Parse([]byte(test.text))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "secret") {
					t.Fatalf("error %v, want %q and no token", err, test.err)
				}
				return
			}
			if err != nil || len(warnings) != test.warnings {
				t.Fatalf("error %v, warnings %q, want %d", err, warnings, test.warnings)
			}
			resp, ok, err := a.AuthenticateToken(t.Context(), test.token, nil)
			if err != nil || ok != (test.want != nil) {
				t.Fatalf("got %v, %v, want %v", ok, err, test.want)
			}
			if ok && (resp.User.Name != test.want.Name || resp.User.UID != test.want.UID || !slices.Equal(resp.User.Groups, test.want.Groups)) {
				t.Errorf("user %+v, want %+v", resp.User, *test.want)
			}
		})
	}
}

// TestLoadRejectsUnreadableFiles checks the errors for missing, unreadable and too large files.
func TestLoadRejectsUnreadableFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.csv")
	if _, _, err := tokenfile.Load(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v, want error %v", err, os.ErrNotExist)
	}
	if _, _, err := tokenfile.Load(filepath.Dir(path)); err == nil || !strings.Contains(err.Error(), "read ") {
		t.Errorf("directory: got %v, want a read error", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<30); err != nil { // a sparse file
		t.Fatal(err)
	}
	if _, _, err := tokenfile.Load(path); err == nil || !strings.Contains(err.Error(), "is larger than") {
		t.Errorf("file over the limit: got %v, want an error about the size", err)
	}
	if err := os.WriteFile(path, []byte("tok,alice,u1\nbad\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tokenfile.Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v does not name the file", err)
	}
	if err := os.WriteFile(path, []byte("tok,alice,u1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, _, err := tokenfile.Load(path)
	if err != nil || a.Len() != 1 {
		t.Errorf("got %v, %v, want one token", a, err)
	}
}

// FuzzParse checks that no file makes the empty token valid.
func FuzzParse(f *testing.F) {
	f.Add([]byte("tok,alice,u1,\"dev,ops\"\n\n,x,y\n"))
	f.Add([]byte("a\"b,c"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, _, err := tokenfile.Parse(data)
		if err != nil {
			return
		}
		if _, ok, _ := a.AuthenticateToken(t.Context(), "", nil); ok {
			t.Errorf("authentication of the empty token with file %q = true, want false", data)
		}
	})
}
