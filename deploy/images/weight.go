package main

import (
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
)

// heaviest is what an image may weigh packed, in bytes: what a registry keeps and a
// node fetches.
const heaviest = 60_000_000

// weight is the size of files in bytes, as they are and packed as the layers of an
// image are. It packs as fast as it can, so that builders make it smaller, not larger.
type weight struct{ unpacked, packed int64 }

func weigh(files ...string) (weight, error) {
	var w weight
	counted := counter{&w.packed}
	zip, err := gzip.NewWriterLevel(counted, gzip.BestSpeed)
	if err != nil {
		return weight{}, err
	}
	for _, path := range files {
		n, err := pack(zip, path)
		if err != nil {
			return weight{}, err
		}
		w.unpacked += n
	}
	return w, zip.Close()
}

func pack(to io.Writer, path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return io.Copy(to, f)
}

// check refuses an image that is too heavy.
func (w weight) check(limit int64) error {
	if w.packed > limit {
		return fmt.Errorf("%s, which is more than %.0f MB", w, float64(limit)/1e6)
	}
	return nil
}

func (w weight) String() string {
	return fmt.Sprintf("%.1f MB packed, %.1f unpacked", float64(w.packed)/1e6, float64(w.unpacked)/1e6)
}

// counter counts what is written.
type counter struct{ n *int64 }

func (c counter) Write(p []byte) (int, error) {
	*c.n += int64(len(p))
	return len(p), nil
}
