// Command etcd is the etcd server of a version that no distribution has; scripts/etcd --newest builds it.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
