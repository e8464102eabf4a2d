package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Save writes the history into a folder as JSON Lines, one file per kind of record.
func (h *History) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, w := range h.AllWatches() {
		if err := saveLines(filepath.Join(dir, "watch-"+w.Name+".jsonl"), w.Streams); err != nil {
			return err
		}
	}
	var truth []Change
	if h.ChangeLog != nil {
		truth = h.ChangeLog.Changes
	}
	for _, err := range []error{
		saveLines(filepath.Join(dir, "faults.jsonl"), h.Faults),
		saveLines(filepath.Join(dir, "operations.jsonl"), h.Operations),
		saveLines(filepath.Join(dir, "reads.jsonl"), h.Reads),
		saveLines(filepath.Join(dir, "truth.jsonl"), truth),
		os.WriteFile(filepath.Join(dir, "seed"), fmt.Appendln(nil, h.Seed), 0o644),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// saveLines writes records as JSON, one per line.
func saveLines[T any](path string, records []T) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
	}()
	writer := bufio.NewWriter(file)
	enc := json.NewEncoder(writer)
	for i := range records {
		if err := enc.Encode(&records[i]); err != nil {
			return err
		}
	}
	return writer.Flush()
}
