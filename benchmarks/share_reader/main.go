// Reads records of a topic in a share group with franz-go; prints how many, and the seconds from the first one on.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	want, _ := strconv.Atoi(os.Args[4])
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.ShareGroup(os.Args[2]), kgo.ConsumeTopics(os.Args[3]))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var begin time.Time
	got := 0
	for got < want && ctx.Err() == nil {
		f := client.PollFetches(ctx)
		n := f.NumRecords()
		if n > 0 && got == 0 {
			begin = time.Now()
		}
		got += n
	}
	fmt.Println(got, time.Since(begin).Seconds())
	client.Close()
}
