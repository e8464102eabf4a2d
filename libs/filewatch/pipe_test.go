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
	write(t, file, "a")
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
	if s := <-got; s != "" {
		t.Errorf("pipe without a writer: got %q, want nothing", s)
	}
	next := filepath.Join(dir, "next")
	write(t, next, "b")
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
	if s := <-got; s != "b" {
		t.Errorf("got %q, want b", s)
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
	keep, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0) // keeps the data after the writer has closed
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Close()
	go func() {
		_, first := file.WriteString("one ")
		_, second := file.WriteString("two")
		if err := errors.Join(first, second, file.Close()); err != nil {
			t.Error(err)
		}
	}()
	data, err := filewatch.Read(pipe)
	if err != nil || string(data) != "one two" {
		t.Errorf("got %q, %v, want \"one two\"", data, err)
	}
}
