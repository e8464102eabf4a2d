package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Names of the files of backups in a folder: etcd-20060102T150405Z.db, so that they sort by time.
const (
	backupPrefix = "etcd-"
	backupSuffix = ".db"
	backupTime   = "20060102T150405Z"
)

// removeOldBackups removes all backups of a folder except for the newest keep, and the partial
// files of failed backups. It returns the names of removed backups. Other files stay.
func removeOldBackups(dir string, keep int) (removed []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var backups []string
	for _, e := range entries {
		name, isPart := strings.CutSuffix(e.Name(), partialSuffix)
		if !isBackupName(name) {
			continue
		}
		if isPart {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
			continue
		}
		backups = append(backups, name)
	}
	slices.Sort(backups)
	for len(backups) > keep {
		if removeErr := os.Remove(filepath.Join(dir, backups[0])); removeErr != nil {
			return removed, errors.Join(err, removeErr)
		}
		removed = append(removed, backups[0])
		backups = backups[1:]
	}
	return removed, err
}

// isBackupName reports whether a backup has a file of this name.
func isBackupName(name string) bool {
	name, hasPrefix := strings.CutPrefix(name, backupPrefix)
	stamp, hasSuffix := strings.CutSuffix(name, backupSuffix)
	_, err := time.Parse(backupTime, stamp)
	return hasPrefix && hasSuffix && err == nil
}
