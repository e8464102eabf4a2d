package main

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// entry is a file of an archive. If path is set, the content is read from that file.
type entry struct {
	name, path string
	content    []byte
	executable bool
}

// writeArchive writes a tar.gz of files below one folder. It is reproducible: equal arguments and
// contents give equal bytes.
func writeArchive(w io.Writer, folder string, modified time.Time, entries []entry) error {
	writer, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(writer)
	entries = slices.SortedFunc(slices.Values(entries), func(a, b entry) int { return strings.Compare(a.name, b.name) })
	for i, e := range entries {
		if i > 0 && e.name == entries[i-1].name {
			return fmt.Errorf("duplicate file name %q", e.name)
		}
		if err := appendEntry(archive, folder, modified, e); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return writer.Close()
}

// appendEntry adds a file to an archive, with reproducible metadata.
func appendEntry(writer *tar.Writer, folder string, modified time.Time, added entry) error {
	if added.path != "" {
		var err error
		if added.content, err = os.ReadFile(added.path); err != nil {
			return err
		}
	}
	mode := int64(0o644)
	if added.executable {
		mode = 0o755
	}
	if err := writer.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg,
		Name:     folder + "/" + added.name,
		Size:     int64(len(added.content)),
		Mode:     mode,
		ModTime:  modified,
		Format:   tar.FormatPAX,
	}); err != nil {
		return err
	}
	_, err := writer.Write(added.content)
	return err
}
