package main

import (
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
)

// imageSize is the size of files in bytes, unpacked and compressed like the layers of an
// image. Builders compress harder, so their images are smaller.
type imageSize struct{ unpacked, packed int64 }

// measureFiles returns the total size of files, and their size when compressed.
func measureFiles(files ...string) (imageSize, error) {
	var size imageSize
	zip, err := gzip.NewWriterLevel(byteCounter{&size.packed}, gzip.BestSpeed)
	if err != nil {
		return imageSize{}, err
	}
	for _, path := range files {
		n, err := compress(zip, path)
		if err != nil {
			return imageSize{}, err
		}
		size.unpacked += n
	}
	return size, zip.Close()
}

func compress(to io.Writer, path string) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return io.Copy(to, file)
}

func (s imageSize) String() string {
	return fmt.Sprintf("%.1f MB packed, %.1f unpacked", float64(s.packed)/1e6, float64(s.unpacked)/1e6)
}

// byteCounter counts the bytes that are written to it.
type byteCounter struct{ n *int64 }

func (c byteCounter) Write(p []byte) (int, error) {
	*c.n += int64(len(p))
	return len(p), nil
}
