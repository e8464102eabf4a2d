//go:build unix

package filewatch_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"binnacle/libs/filewatch"
)

// TestPipeWithoutWriterDoesNotBlock checks that a pipe without a writer delays neither later
// contents nor the end of Follow.
func TestPipeWithoutWriterDoesNotBlock(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	replaceFile(t, file, "a")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	// A late writer ends the wait if the implementation blocks.
	release := time.AfterFunc(10*time.Second, func() {
		if w, err := os.OpenFile(file, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			t.Error("reading a named pipe without a writer blocked for 10 s, want an error at once")
			w.Close()
		}
	})
	t.Cleanup(func() { release.Stop() })
	got := followFile(t, file, "a")
	if err := os.Rename(pipe, file); err != nil {
		t.Fatal(err)
	}
	if content := <-got; content != "" {
		t.Errorf("pipe without a writer: got %q, want nothing", content)
	}
	next := filepath.Join(dir, "next")
	replaceFile(t, next, "b")
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
	if content := <-got; content != "b" {
		t.Errorf("got %q, want b", content)
	}
}

// TestPipeIsReadToEnd checks that a slow writer is waited for.
func TestPipeIsReadToEnd(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(pipe, os.O_RDWR, 0) // does not wait for a reader
	if err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0) // keeps the data after the writer has closed
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	go func() {
		_, firstErr := file.WriteString("one ")
		_, secondErr := file.WriteString("two")
		if err := errors.Join(firstErr, secondErr, file.Close()); err != nil {
			t.Error(err)
		}
	}()
	data, err := filewatch.Read(pipe)
	if err != nil || string(data) != "one two" {
		t.Errorf("got %q, %v, want \"one two\"", data, err)
	}
}
