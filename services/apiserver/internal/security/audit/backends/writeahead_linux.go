package backends

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// openWriteAheadFile opens the write-ahead file of a log exclusively. It returns the lines that another
// process left in the file.
func openWriteAheadFile(log string) (p *writeAhead, had []byte, err error) {
	f, err := openExclusive(log + writeAheadSuffix)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", f.Name())
	}
	if err == nil {
		had = make([]byte, min(info.Size(), headerSize+maxWriteAhead))
		_, err = f.ReadAt(had, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	p = &writeAhead{text: make([]byte, maxWriteAhead), file: f}
	p.close = func() error {
		mapped := p.mapped
		p.text, p.used, p.mapped = nil, 0, nil
		if mapped != nil {
			err = syscall.Munmap(mapped)
		}
		// Remove the file before the lock is released.
		return errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	return p, recoveredLines(had), nil
}

// openExclusive opens or creates a file and locks it for this process.
func openExclusive(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return nil, errors.Join(fmt.Errorf("%s is locked by another process: %w", name, err), f.Close())
		}
		has, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		is, err := os.Lstat(name)
		switch {
		case err == nil && os.SameFile(has, is):
			return f, nil
		case err != nil && !errors.Is(err, os.ErrNotExist):
			return nil, errors.Join(err, f.Close())
		}
		// The previous owner has removed the file, so its contents would be lost.
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// mapFile initializes and maps the file. The lines of another process must have been recovered before.
func (p *writeAhead) mapFile() (err error) {
	fd, name := int(p.file.Fd()), p.file.Name()
	// Allocate all blocks now, because a write to a mapped page without a block fails.
	if err := syscall.Fallocate(fd, 0, 0, headerSize+maxWriteAhead); err != nil {
		return fmt.Errorf("allocate %s: %w", name, err)
	}
	p.mapped, err = syscall.Mmap(fd, 0, headerSize+maxWriteAhead, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %s: %w", name, err)
	}
	if !p.store(0, 0) || !p.writeMapped(func() { copy(p.mapped[8:], headerMark) }) {
		return fmt.Errorf("%s was truncated", name)
	}
	return nil
}
