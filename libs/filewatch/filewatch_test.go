package filewatch_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"binnacle/libs/filewatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// followFile returns a channel of what Follow reports.
func followFile(t *testing.T, file, known string) <-chan string {
	t.Helper()
	got := make(chan string, 10)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- filewatch.Follow(ctx, slog.New(slog.DiscardHandler), file, []byte(known),
			func(_ context.Context, data []byte, err error) {
				if err != nil {
					got <- "error: " + err.Error()
					return
				}
				got <- string(data)
			})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow() = %v, want error %v", err, context.Canceled)
		}
	})
	return got
}

func write(t *testing.T, file, content string) {
	t.Helper()
	next := file + ".next"
	if err := errors.Join(os.WriteFile(next, []byte(content), 0o600), os.Rename(next, file)); err != nil {
		t.Fatal(err)
	}
}

// TestFollowReportsEachChange checks that changes, removal and recreation of the file are reported,
// each once.
func TestFollowReportsEachChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	write(t, file, "two")
	got := followFile(t, file, "one")
	if s := <-got; s != "two" {
		t.Errorf("got %q, want the change before the start", s)
	}
	write(t, file, "three")
	if s := <-got; s != "three" {
		t.Errorf("got %q, want \"three\"", s)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if s := <-got; !strings.HasPrefix(s, "error: open ") {
		t.Errorf("got %q, want an error of open", s)
	}
	write(t, file, "three")
	write(t, file, "four")
	for s := range got {
		if s == "four" {
			break
		}
		if s != "three" {
			t.Errorf("got %q, want \"three\"", s)
		}
	}
}

// TestFollowSymbolicLinks replaces a folder behind a link, as mounted volumes do.
func TestFollowSymbolicLinks(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "..data")
	for _, n := range []string{"1", "2"} {
		folder := filepath.Join(dir, "v"+n)
		if err := errors.Join(os.Mkdir(folder, 0o700),
			os.WriteFile(filepath.Join(folder, "config"), []byte(n), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "config")
	if err := errors.Join(os.Symlink("v1", link), os.Symlink(filepath.Join("..data", "config"), file)); err != nil {
		t.Fatal(err)
	}
	got := followFile(t, file, "")
	if s := <-got; s != "1" {
		t.Errorf("got %q, want \"1\"", s)
	}
	if err := errors.Join(os.Symlink("v2", link+".next"), os.Rename(link+".next", link)); err != nil {
		t.Fatal(err)
	}
	if s := <-got; s != "2" {
		t.Errorf("got %q, want \"2\"", s)
	}
}

// TestFollowRecreatedFolder checks that changes in a recreated folder are found without delay.
func TestFollowRecreatedFolder(t *testing.T) {
	for name, replace := range map[string]func(dir string) error{
		"deleted and made": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) },
		"moved away":       func(dir string) error { return errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "folder")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "config")
			write(t, file, "one")
			got := followFile(t, file, "")
			if s := <-got; s != "one" {
				t.Errorf("got %q, want \"one\"", s)
			}
			if err := replace(dir); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"two", "three"} {
				write(t, file, want)
				for s, late := "", time.After(30*time.Second); s != want; {
					select {
					case s = <-got:
					case <-late:
						t.Fatalf("%q was not found before the next poll", want)
					}
					if s != want && !strings.HasPrefix(s, "error: ") {
						t.Errorf("got %q, want %q", s, want)
					}
				}
			}
		})
	}
}

// TestReadIsLimited checks that a file larger than maxBytes is an error.
func TestReadIsLimited(t *testing.T) {
	file := filepath.Join(t.TempDir(), "big")
	write(t, file, strings.Repeat("a", 5<<20))
	if _, err := filewatch.Read(file); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got %v, want an error about the size", err)
	}
}

// TestContentIsReportedUntilApplied checks that a content is reported until it was applied, and not
// again after that.
func TestContentIsReportedUntilApplied(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	write(t, file, "two")
	ctx, cancel := context.WithCancel(context.Background())
	got, taken, done := make(chan string), make(chan bool), make(chan error)
	go func() {
		done <- filewatch.FollowUntilApplied(ctx, slog.New(slog.DiscardHandler), file, []byte("one"),
			func(_ context.Context, data []byte, _ error) bool {
				got <- string(data)
				return <-taken
			})
	}()
	for _, test := range []struct {
		want  string
		taken bool
		then  func() // a change in the folder
	}{
		{want: "two", taken: false, then: func() { write(t, file+".beside", "1") }},
		{want: "two", taken: false, then: func() { write(t, file, "three") }},
		{want: "three", taken: true, then: func() { write(t, file+".beside", "2"); write(t, file, "four") }},
		{want: "four", taken: true, then: func() {}},
	} {
		if s := <-got; s != test.want {
			t.Errorf("got %q, want %q", s, test.want)
		}
		test.then()
		taken <- test.taken
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("FollowUntilApplied() = %v, want error %v", err, context.Canceled)
	}
}
