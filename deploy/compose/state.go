package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"binnacle/deploy/certs"
)

// layout returns the layout of the certificates.
func (c *config) layout() certs.Layout { return certs.Layout{Dir: filepath.Join(c.State, "certs")} }

// createFolders creates the mounted folders.
func (c *config) createFolders() error {
	for i := range 3 {
		if err := os.MkdirAll(filepath.Join(c.State, "data", fmt.Sprintf("etcd-%d", i)), 0o700); err != nil {
			return err
		}
	}
	// Docker checks mounted folders as root, so they may be private.
	return chownToContainerUser(filepath.Join(c.State, "data"))
}

// ensureCertificates creates missing certificates and prints the written files.
func (c *config) ensureCertificates() error {
	layout := c.layout()
	written, err := certs.Ensure(certs.Options{Dir: layout.Dir})
	if err != nil {
		return err
	}
	if len(written) > 0 {
		c.printf("made %d certificates and keys in %s", len(written), layout.Dir)
	}
	for _, program := range certs.Programs() {
		if err := chownToContainerUser(layout.Folder(program)); err != nil {
			return err
		}
	}
	return nil
}

// chownToContainerUser changes the owner of files to the user of the containers, if that is not the
// current user.
func chownToContainerUser(dir string) error {
	uid, gid := containerUser()
	if uid == os.Getuid() {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
}

// writeKubeconfig writes the kubeconfig of the administrator.
func (c *config) writeKubeconfig() (path string, err error) {
	path = filepath.Join(c.State, "kubeconfig")
	if err := clientcmd.WriteToFile(*c.layout().AdminKubeconfig(fmt.Sprintf("https://127.0.0.1:%d", c.Port)), path); err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return path, nil
}
