//! The gRPC service `KV`.

use async_trait::async_trait;
use etcd_client::proto::{
    PbCompactionRequest, PbCompactionResponse, PbDeleteRequest, PbDeleteResponse, PbKvService,
    PbPutRequest, PbPutResponse, PbRangeRequest, PbRangeResponse, PbRangeStreamResponse,
    PbTxnRequest, PbTxnResponse,
};
use futures_util::stream::BoxStream;
use tonic::{Request, Response, Status};

use super::apply::{Applied, Operation};
use super::errors::EtcdError;
use super::services::{Services, proposed, unimplemented};
use super::{read, transaction, validate};

#[async_trait]
impl PbKvService for Services {
    async fn range(
        &self,
        request: Request<PbRangeRequest>,
    ) -> Result<Response<PbRangeResponse>, Status> {
        self.unary("Range", request, |services, request| async move {
            validate::range(&request)?;
            if !request.serializable {
                services.linearize().await?;
            }
            let mut response = {
                let state = services.shared.lock();
                if state.store.corrupt {
                    return Err(EtcdError::Corrupt);
                }
                read::range(state.view(services.member), &request)?
            };
            services.fill(&mut response.header);
            Ok(response)
        })
        .await
    }

    type RangeStreamStream = BoxStream<'static, Result<PbRangeStreamResponse, Status>>;

    async fn range_stream(
        &self,
        _: Request<PbRangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        Err(unimplemented("RangeStream", "etcdserverpb.KV"))
    }

    async fn put(&self, request: Request<PbPutRequest>) -> Result<Response<PbPutResponse>, Status> {
        self.unary("Put", request, |services, request| async move {
            validate::put(&request)?;
            proposed!(services, Operation::Put(request), Put)
        })
        .await
    }

    async fn delete_range(
        &self,
        request: Request<PbDeleteRequest>,
    ) -> Result<Response<PbDeleteResponse>, Status> {
        self.unary("DeleteRange", request, |services, request| async move {
            validate::delete(&request)?;
            proposed!(services, Operation::Delete(request), Delete)
        })
        .await
    }

    async fn txn(&self, request: Request<PbTxnRequest>) -> Result<Response<PbTxnResponse>, Status> {
        self.unary("Txn", request, |services, request| async move {
            validate::txn(&request)?;
            if !transaction::is_read_only(&request) {
                return proposed!(services, Operation::Txn(request), Txn);
            }
            if !transaction::is_serializable(&request) {
                services.linearize().await?;
            }
            let mut response = {
                let state = services.shared.lock();
                transaction::read_only(state.view(services.member), &request)?
            };
            services.fill(&mut response.header);
            Ok(response)
        })
        .await
    }

    async fn compact(
        &self,
        request: Request<PbCompactionRequest>,
    ) -> Result<Response<PbCompactionResponse>, Status> {
        self.unary("Compact", request, |services, request| async move {
            proposed!(services, Operation::Compact(request), Compact)
        })
        .await
    }
}
