package main

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"binnacle/deploy/certs"
	"binnacle/libs/version"
)

// runError is an error of a command with a valid command line, for exit code 1 instead of 2.
type runError struct{ error }

// newKubeconfig returns the command that prints a kubeconfig for the administrator, with
// the certificates in it.
func newKubeconfig() *cobra.Command {
	var dir, server string
	command := &cobra.Command{
		Use: "kubeconfig", Short: "Print a kubeconfig of the administrator.", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if u, err := url.Parse(server); err != nil || u.Scheme != "https" || u.Host == "" {
				return fmt.Errorf("--server: %q is not an https URL", server)
			}
			text, err := flattenedKubeconfig(certs.Layout{Dir: dir}, server)
			if err != nil {
				return &runError{err}
			}
			_, err = command.OutOrStdout().Write(text)
			return err
		},
	}
	command.Flags().StringVar(&dir, "dir", "certs", "Folder of the certificates.")
	command.Flags().StringVar(&server, "server", "https://127.0.0.1:6443", "URL of the API server.")
	return command
}

func flattenedKubeconfig(layout certs.Layout, server string) ([]byte, error) {
	c := layout.AdminKubeconfig(server)
	if err := clientcmdapi.FlattenConfig(c); err != nil {
		return nil, err
	}
	return clientcmd.Write(*c)
}

// newVersion returns the command that prints the versions of the suite and of the
// Kubernetes API that it serves.
func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of the suite and of the Kubernetes API.", Args: cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) {
			fmt.Fprintf(c.OutOrStdout(), "%s %s, Kubernetes %s, %s, %s\n", name, version.Suite(), version.Kubernetes,
				version.Get().GoVersion, version.Get().Platform)
		},
	}
}
