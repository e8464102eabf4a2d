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
	reports := make(chan string, 10)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- filewatch.Follow(ctx, slog.New(slog.DiscardHandler), file, []byte(known),
			func(_ context.Context, data []byte, err error) {
				if err != nil {
					reports <- "error: " + err.Error()
					return
				}
				reports <- string(data)
			})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow() = %v, want error %v", err, context.Canceled)
		}
	})
	return reports
}

// replaceFile replaces the content of a file in one step.
func replaceFile(t *testing.T, file, content string) {
	t.Helper()
	next := file + ".next" // a rename replaces the content at once
	if err := errors.Join(os.WriteFile(next, []byte(content), 0o600), os.Rename(next, file)); err != nil {
		t.Fatal(err)
	}
}

// TestFollowReportsEachChange checks that changes, removal and recreation of the file are reported,
// each once.
func TestFollowReportsEachChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	replaceFile(t, file, "two")
	got := followFile(t, file, "one")
	if content := <-got; content != "two" {
		t.Errorf("got %q, want the change before the start", content)
	}
	replaceFile(t, file, "three")
	if content := <-got; content != "three" {
		t.Errorf("got %q, want \"three\"", content)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if content := <-got; !strings.HasPrefix(content, "error: open ") {
		t.Errorf("got %q, want an error of open", content)
	}
	replaceFile(t, file, "three")
	replaceFile(t, file, "four")
	for content := range got {
		if content == "four" {
			break
		}
		if content != "three" {
			t.Errorf("got %q, want \"three\"", content)
		}
	}
}

// TestFollowSymbolicLinks replaces a folder behind a link, as mounted volumes do.
func TestFollowSymbolicLinks(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "..data")
	for _, version := range []string{"1", "2"} {
		folder := filepath.Join(dir, "v"+version)
		if err := errors.Join(os.Mkdir(folder, 0o700),
			os.WriteFile(filepath.Join(folder, "config"), []byte(version), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "config")
	if err := errors.Join(os.Symlink("v1", link), os.Symlink(filepath.Join("..data", "config"), file)); err != nil {
		t.Fatal(err)
	}
	got := followFile(t, file, "")
	if content := <-got; content != "1" {
		t.Errorf("got %q, want \"1\"", content)
	}
	if err := errors.Join(os.Symlink("v2", link+".next"), os.Rename(link+".next", link)); err != nil {
		t.Fatal(err)
	}
	if content := <-got; content != "2" {
		t.Errorf("got %q, want \"2\"", content)
	}
}

// TestFollowRecreatedFolder checks that changes in a recreated folder are found without delay.
func TestFollowRecreatedFolder(t *testing.T) {
	for name, replace := range map[string]func(dir string) error{
		"deleted and created": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) },
		"moved and created":   func(dir string) error { return errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "folder")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "config")
			replaceFile(t, file, "one")
			got := followFile(t, file, "")
			if content := <-got; content != "one" {
				t.Errorf("got %q, want \"one\"", content)
			}
			if err := replace(dir); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"two", "three"} {
				replaceFile(t, file, want)
				for content, timeout := "", time.After(30*time.Second); content != want; {
					select {
					case content = <-got:
					case <-timeout:
						t.Fatalf("%q was not found before the next poll", want)
					}
					if content != want && !strings.HasPrefix(content, "error: ") {
						t.Errorf("got %q, want %q", content, want)
					}
				}
			}
		})
	}
}

// TestReadIsLimited checks that a file larger than maxBytes is an error.
func TestReadIsLimited(t *testing.T) {
	file := filepath.Join(t.TempDir(), "big")
	replaceFile(t, file, strings.Repeat("a", 5<<20))
	if _, err := filewatch.Read(file); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got %v, want an error about the size", err)
	}
}

// TestContentIsReportedUntilApplied checks that a content is reported until it was applied, and not
// again after that.
func TestContentIsReportedUntilApplied(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	replaceFile(t, file, "two")
	ctx, cancel := context.WithCancel(context.Background())
	got, applied, done := make(chan string), make(chan bool), make(chan error)
	go func() {
		done <- filewatch.FollowUntilApplied(ctx, slog.New(slog.DiscardHandler), file, []byte("one"),
			func(_ context.Context, data []byte, _ error) bool {
				got <- string(data)
				return <-applied
			})
	}()
	for _, test := range []struct {
		want    string
		applied bool
		change  func() // a change in the folder
	}{
		{want: "two", applied: false, change: func() { replaceFile(t, file+".beside", "1") }},
		{want: "two", applied: false, change: func() { replaceFile(t, file, "three") }},
		{want: "three", applied: true, change: func() { replaceFile(t, file+".beside", "2"); replaceFile(t, file, "four") }},
		{want: "four", applied: true, change: func() {}},
	} {
		if content := <-got; content != test.want {
			t.Errorf("got %q, want %q", content, test.want)
		}
		test.change()
		applied <- test.applied
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("FollowUntilApplied() = %v, want error %v", err, context.Canceled)
	}
}
